"""Sets in an object store: a server on 127.0.0.1 that speaks S3, breaks off, and counts."""

import json
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from support.s3_server import KEY, SECRET, s3_server
from support.sharded_rows import write_shards

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.remote import RemotePath, remote_parts, set_path

# Every variable is given, so that no client asks another address than this server's.
READ = """
import json, sys
from pathlib import Path
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.sharded_set import ShardedSet
from swift_vlrft.datasets.training import LoadOptions
told = []
data = ShardedSet(open_set(sys.argv[1]), LoadOptions(cache=Path("unused")), told.append)
order = [int(n) for w in data.shards.order(5, int(sys.argv[2])) for n in w]
batches = [data.__getitems__(order[at:at + 8]) for at in range(0, len(order), 8)]
rows = [row["number"] for batch in batches for row in batch]
print(json.dumps({"rows": rows, "told": told}))
"""


CLI = "from swift_vlrft.cli import app; app()"


@pytest.fixture
def store(tmp_path):
    write_shards(tmp_path / "bucket" / "sets" / "flowers", 10, 40, broken={3, 150})
    with s3_server(tmp_path) as server:
        yield server


def run(server, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), **server.environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_a_set_in_a_store(store):
    address = "s3://bucket/sets/flowers"
    done = run(store, "-c", READ, address, "0")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert set(found["rows"]) == set(range(400)) - {3, 150} and found["rows"] != sorted(
        found["rows"]
    )
    assert f"{address}/train-00003-of-00010.parquet, row 30: " in "\n".join(found["told"])
    whole = store.given.total()
    # In the middle: what comes before is not asked for again, but for the files' ends.
    store.given.clear()
    half = run(store, "-c", READ, address, "320")
    assert json.loads(half.stdout)["rows"] == found["rows"][320:]
    assert store.given.total() < 0.8 * whole
    # Answers that end halfway are asked for again.
    store.breaks = 6
    again = run(store, "-c", READ, address, "0")
    assert again.returncode == 0, again.stderr[-2000:]
    assert json.loads(again.stdout) == found and store.breaks == 0 and store.unsigned == 0
    # The commands that read a set.
    done = run(store, "-c", CLI, "data", "check", address, "--json")
    assert done.returncode == 1, done.stderr[-2000:]
    assert json.loads(done.stdout)["rows"] == 400 and json.loads(done.stdout)["good"] == 398
    done = run(store, "-c", CLI, "data", "check", "s3://bucket/sets/none")
    assert done.returncode == 2 and "s3://bucket/sets/none" in done.stderr
    assert "Traceback" not in done.stderr and SECRET not in done.stderr and KEY not in done.stderr


def test_any_store_of_fsspec(tmp_path):
    write_shards(tmp_path, 3, 4)
    fsspec.filesystem("memory").put(str(tmp_path), "/of-fsspec", recursive=True)
    stored = open_set("memory://of-fsspec")
    assert len(stored.files) == 3 and stored.files[0].name == "train-00000-of-00003.parquet"
    assert sum(1 for _ in stored.records()) == 12
    # As Spark names its folders.
    fsspec.filesystem("memory").put(str(tmp_path), "/table.parquet", recursive=True)
    assert len(open_set("memory://table.parquet").files) == 3
    for name in ("none", "none.parquet"):
        with pytest.raises(DataError, match=f"memory://{name} does not exist"):
            open_set(f"memory://{name}")
    with pytest.raises(DataError, match="nosuchstore"):
        open_set("nosuchstore://bucket/set")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("s3://bucket/a/set", ("s3://bucket/a/set", [])),
        ("s3://bucket/a/set:pixels", ("s3://bucket/a/set", ["pixels"])),
        ("s3:/bucket/set: native/ocr", ("s3://bucket/set", ["native", "ocr"])),
        ("data/set:pixels", None),
        ("hf::org/set", None),
        ("C:/data", None),
    ],
)
def test_addresses(text, parts):
    found = remote_parts(text)
    assert found == (None if parts is None else (RemotePath(parts[0]), parts[1]))
    if found:
        assert str(found[0]) == str(set_path(Path(parts[0]))) == parts[0]


@pytest.mark.parametrize("text", ["s3://key:secret@bucket/set", "s3://bucket/set?secret_key=x"])
def test_an_address_holds_no_credentials(text):
    for read in (remote_parts, set_path):
        with pytest.raises(DataError, match="neither credentials") as error:
            read(text)
        assert "secret" not in str(error.value)
