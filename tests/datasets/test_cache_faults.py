"""The cache of a set while disks fill up, clocks jump, files vanish, and other runs use it."""

import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.full_disk import no_room, small_disk
from support.stored_sets import PROBLEM, picture

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.cache import shortened
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import read_rows
from swift_vlrft.datasets.training import LoadOptions, training_set
from swift_vlrft.files.writing import DiskFull

NO_OBJECTS = "<answer>No Objects</answer>"
SHARDS, ROWS = 6, 40


def noisy(number: int) -> bytes:
    """A picture of 4 KB, another one for every number."""
    from PIL import Image

    pixels = random.Random(number).randbytes(36 * 36 * 3)
    from io import BytesIO

    buffer = BytesIO()
    Image.frombytes("RGB", (36, 36), pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write_shards(folder: Path, shards: int = SHARDS, rows: int = ROWS) -> Path:
    folder.mkdir()
    for shard in range(shards):
        images = [{"bytes": noisy(shard * rows + n), "path": None} for n in range(rows)]
        columns = {"image": images, "problem": [PROBLEM] * rows, "solution": [NO_OBJECTS] * rows}
        name = f"train-{shard:05d}-of-{shards:05d}.parquet"
        pq.write_table(pa.table(columns), folder / name, row_group_size=4, compression="none")
    return folder


def write_files(folder: Path) -> Path:
    folder.mkdir()
    rows = [{"image": f"{n}.png", "problem": PROBLEM, "solution": NO_OBJECTS} for n in range(5)]
    for n in range(5):
        (folder / f"{n}.png").write_bytes(picture(size=(40 + n, 20)))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


def load(source: Path, cache: Path):
    """The bytes of every row's image, in order, and what was reported."""
    rows, report = training_set(open_set(source, keep_going=True), LoadOptions(cache=cache))
    pictures = []
    for row in rows:
        (image,) = row["images"]
        pictures.append(image["bytes"] or Path(image["path"]).read_bytes())
    return pictures, report


def digest(source: Path, cache: Path) -> str:
    return hashlib.sha256(b"".join(load(source, cache)[0])).hexdigest()


def expected(shards: int = SHARDS, rows: int = ROWS) -> str:
    return hashlib.sha256(b"".join(map(noisy, range(shards * rows)))).hexdigest()


# ---- a full disk -----------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 30_000])
def test_a_full_disk_takes_no_shard_for_damaged(room, tmp_path):
    source = write_shards(tmp_path / "set", shards=2)
    with no_room(room), pytest.raises(DiskFull) as error:
        load(source, tmp_path / "cache")
    assert str(error.value).startswith(f"{tmp_path / 'cache'}/")
    assert "damaged" not in str(error.value)
    assert not list((tmp_path / "cache").iterdir())
    assert digest(source, tmp_path / "cache") == expected(shards=2)


def test_a_disk_that_is_really_full(tmp_path):
    source = write_shards(tmp_path / "set", shards=2)
    with small_disk(tmp_path / "disk", "300k") as mounted:
        if not mounted:
            pytest.skip("only root may mount a disk")
        with pytest.raises(DiskFull, match=r"disk/cache/.*no space is left on its disk \(\d MB"):
            load(source, tmp_path / "disk" / "cache")
        # One shard fits, and stays: the next run writes what is missing.
        whole = [file.name for file in (tmp_path / "disk" / "cache").iterdir()]
        assert not [name for name in whole if name.startswith(".")]
        subprocess.run(["mount", "-o", "remount,size=4m", str(tmp_path / "disk")], check=True)
        assert digest(source, tmp_path / "disk" / "cache") == expected(shards=2)


def test_a_cache_that_cannot_be_written_takes_no_shard_for_damaged(tmp_path):
    source = write_shards(tmp_path / "set", shards=1)
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError, match="cache"):
        load(source, tmp_path / "cache")


# ---- shards that vanish ------------------------------------------------------------------------


def test_a_shard_that_vanishes_while_the_set_is_opened_is_named(tmp_path):
    source = write_shards(tmp_path / "set", shards=2)
    stored = open_set(source, keep_going=True)
    (source / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(DataError, match="train-00000-of-00002.parquet cannot be read"):
        training_set(stored, LoadOptions(cache=tmp_path / "cache"))


def test_shards_that_are_deleted_later_are_not_missed(tmp_path):
    source = write_shards(tmp_path / "set", shards=1)
    rows, _ = training_set(open_set(source), LoadOptions(cache=tmp_path / "cache"))
    for file in (*source.iterdir(), *(tmp_path / "cache").iterdir()):
        file.unlink()
    assert [row["images"][0]["bytes"] for row in rows] == list(map(noisy, range(ROWS)))
    assert shortened() is None


def arrow(folder: Path, rows: int = 400) -> Path:
    from datasets import Dataset

    columns = {
        "image": [{"bytes": noisy(n), "path": None} for n in range(rows)],
        "problem": [PROBLEM] * rows,
        "solution": [NO_OBJECTS] * rows,
    }
    Dataset.from_dict(columns).save_to_disk(folder)
    return next(folder.glob("*.arrow"))


CUT_WHILE_READ = """
import os, sys
from swift_vlrft.datasets.read import read_rows
for n, row in enumerate(read_rows(sys.argv[1])):
    if n == 70:
        os.truncate(sys.argv[2], 4096)
"""


def test_a_file_that_is_cut_while_it_is_read_does_not_kill_the_reader(tmp_path):
    file = arrow(tmp_path / "set")
    command = [sys.executable, "-c", CUT_WHILE_READ, str(tmp_path / "set"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done  # not -7, SIGBUS
    assert f"{file} breaks off or is damaged after row 99 (it had" in done.stderr


@pytest.mark.parametrize("fault", ["cut", "deleted"])
def test_a_parquet_shard_that_goes_while_others_are_read(fault, tmp_path):
    source = write_shards(tmp_path / "set", shards=2)
    second = source / "train-00001-of-00002.parquet"
    with pytest.raises(DataError, match="train-00001-of-00002.parquet breaks off or is damaged"):
        for n, _ in enumerate(read_rows(source)):
            if n == 1 and fault == "cut":
                os.truncate(second, 5000)
            elif n == 1:
                second.unlink()


def test_a_mapped_file_that_lost_its_end_is_named(tmp_path):
    file = arrow(tmp_path / "set", rows=20)
    training_set(open_set(tmp_path / "set"), LoadOptions(cache=tmp_path / "cache"))
    content = file.read_bytes()
    assert shortened() is None
    other = tmp_path / "other"
    other.write_bytes(content[:99])
    os.truncate(file, 4096)
    assert f"{file} had {len(content)} bytes when it was opened, and has 4096 now" in shortened()
    os.replace(other, file)  # the one that is mapped lives on
    assert shortened() is None


# ---- clocks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [0, 4_000_000_000])
@pytest.mark.parametrize("write", [write_shards, write_files])
def test_a_change_is_seen_whatever_the_clock_says(write, clock, tmp_path):
    source, cache = write(tmp_path / "set"), tmp_path / "cache"
    before = load(source, cache)[0]
    for file in cache.rglob("*"):
        os.utime(file, (clock, clock))  # far older, or far newer, than its source
    assert load(source, cache)[0] == before
    file = sorted(tmp_path.glob("set/*.p*"))[0]
    stat, changed = file.stat(), bytearray(file.read_bytes())
    at = changed.index(before[0]) if write is write_shards else 0
    new = bytearray(picture(size=(60, 3)) if at == 0 else noisy(999))
    if at == 0:
        changed[:] = new + bytes(max(0, len(changed) - len(new)))
    else:
        changed[at : at + len(new)] = new
    if len(changed) != stat.st_size:
        pytest.skip("pictures of other sizes")
    file.write_bytes(changed)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as a clock that was set back, or tar
    after = load(source, cache)[0]
    assert after[0] != before[0] and after[1:] == before[1:]


# ---- damage, and other runs --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["*.arrow", "*.infos.json"])
@pytest.mark.parametrize("part", [0, 0.3, 0.9, 0.999])
def test_a_damaged_cache_is_made_again(kind, part, tmp_path):
    source, cache = write_shards(tmp_path / "set", shards=2), tmp_path / "cache"
    load(source, cache)
    for file in cache.glob(kind):
        os.truncate(file, int(file.stat().st_size * part))
    pictures, report = load(source, cache)
    assert pictures == list(map(noisy, range(2 * ROWS))) and not report.problems


def test_a_cache_that_ends_between_two_batches_is_made_again(tmp_path):
    source, cache = write_shards(tmp_path / "set", shards=1), tmp_path / "cache"
    load(source, cache)
    (file,) = cache.glob("*.arrow")
    batches = list(pa.ipc.open_stream(file.read_bytes()))
    with pa.ipc.new_stream(str(file), batches[0].schema) as writer:
        writer.write_batch(batches[0])
    assert digest(source, cache) == expected(shards=1)


def test_an_image_that_could_not_be_read_is_looked_at_again(tmp_path):
    source, cache = write_files(tmp_path / "set"), tmp_path / "cache"
    load(source, cache)
    (file,) = cache.glob("*.infos.json")
    infos = json.loads(file.read_text())
    file.write_text(json.dumps([*infos[:2], "the image cannot be read (EIO)", *infos[3:]]))
    pictures, report = load(source, cache)
    assert len(pictures) == 5 and not report.problems


def start(source: Path, cache: Path, told=None):
    """``digest`` in a process of its own, forked from one that has the imports done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["swift_vlrft.datasets.training", "pyarrow.parquet", "datasets"])
    process = context.Process(target=_digest_to, args=(source, cache, told))
    process.start()
    return process


def _digest_to(source: Path, cache: Path, told) -> None:
    found = digest(source, cache)
    if told is not None:
        told.put(found)


@pytest.mark.slow
def test_three_runs_share_a_cold_cache(tmp_path):
    source, cache = write_shards(tmp_path / "set"), tmp_path / "cache"
    told = multiprocessing.get_context("forkserver").Queue()
    processes = [start(source, cache, told) for _ in range(3)]
    assert [told.get(timeout=300) for _ in processes] == [expected()] * 3
    for process in processes:
        process.join()
    assert len(list(cache.iterdir())) == 2 * SHARDS and digest(source, cache) == expected()


@pytest.mark.slow
def test_runs_that_are_killed_while_they_write_leave_no_half_cache(tmp_path):
    """Each is killed a little later than the one before it, and starts on what all of them left."""
    source, cache = write_shards(tmp_path / "set"), tmp_path / "cache"
    cache.mkdir()
    states, killed, wait = set(), 0, 0.001
    deadline = time.monotonic() + 500
    while killed < 16:
        process, before = start(source, cache), set(cache.iterdir())
        while process.is_alive() and {*cache.iterdir()} <= before:  # until it writes
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        time.sleep(wait)
        killed += process.is_alive()
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        whole = list(cache.glob("*.arrow"))
        states.add((len(whole), len(list(cache.glob(".*"))) > len(before)))
        for file in whole:
            assert len(pa.ipc.open_stream(pa.memory_map(str(file))).read_all()) == ROWS
        wait = 0.001 if len(whole) == SHARDS else wait * 1.6
        if len(whole) == SHARDS:
            assert digest(source, cache) == expected()
            for file in cache.iterdir():
                file.unlink()
    assert digest(source, cache) == expected()
    assert len(states) > 1, states  # it was killed at different points
