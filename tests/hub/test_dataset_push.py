"""`vlrft data push` with the hubs' own SDKs against a recording hub on loopback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.hub_server import TOKEN, hub_environment, running_hub
from support.written_sets import row
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import BadRow, RowLocation
from swift_vlrft.datasets.writer import write_folder

pytestmark = pytest.mark.slow


@pytest.fixture
def hub():
    with running_hub() as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    items = [
        *(row(i) for i in range(30)),
        BadRow(RowLocation(Path("/home/me/rows.jsonl"), 3), "bad"),
    ]
    write_folder(tmp_path / "shapes", {"train": items})
    (tmp_path / "shapes" / "private-notes.txt").write_text("stays here")
    return tmp_path / "shapes"


def push(hub, folder: Path, *arguments: str, **changes: str | None):
    env = {
        **os.environ,
        **hub_environment(hub.url, folder.parent),
        **{k: v or "" for k, v in changes.items()},
    }
    code = "from swift_vlrft.cli import app; app()"
    command = [sys.executable, "-c", code, "data", "push", str(folder), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("name", "prefix"), [("hf", "hf"), ("modelscope", "ms")])
def test_the_folder_and_its_card_arrive_and_nothing_else(hub, folder, name, prefix):
    before = {path.name for path in folder.iterdir()}
    done = push(hub, folder, "--hub", name, "--repo", "me/shapes", "--private", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == {
        "page": f"{hub.url}/datasets/me/shapes",
        "dataset": f"{prefix}::me/shapes",
    }
    repo = hub.repos["me/shapes"]
    shard = "data/train-00000-of-00001.parquet"
    assert repo.private and set(repo.files) == {"README.md", "assets/rows.jpg", shard}
    assert repo.files[shard] == (folder / shard).read_bytes()
    assert {path.name for path in folder.iterdir()} == {*before}  # nothing is left in the folder
    assert {a for _, _, a in hub.requests if a} == {f"Bearer {TOKEN}"}
    assert TOKEN not in done.stdout + done.stderr
    for file in folder.parent.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes(), file
    # Again, onto what is there: a new commit, no error.
    assert push(hub, folder, "--hub", name, "--repo", "me/shapes").returncode == 0


def test_modelscope_is_not_told_a_licence_that_nobody_stated(hub, folder):
    assert push(hub, folder, "--hub", "modelscope", "--repo", "me/a").returncode == 0
    assert hub.repos["me/a"].licence == "other"
    card = folder / "README.md"
    card.write_text(card.read_text().replace("# license: state", "license: cc-by-4.0 #"))
    assert yaml.safe_load(card.read_text().split("---\n")[1])["license"] == "cc-by-4.0"
    assert push(hub, folder, "--hub", "modelscope", "--repo", "me/b").returncode == 0
    assert hub.repos["me/b"].licence == "cc-by-4.0"


@pytest.mark.parametrize("name", ["hf", "modelscope"])
def test_a_hub_that_repeats_the_token_in_its_error_does_not_get_it_printed(hub, folder, name):
    hub.refuse_with_echo = True
    done = push(hub, folder, "--hub", name, "--repo", "me/shapes")
    assert done.returncode == 1
    assert f"{name} did not take" in done.stderr and "may not write" in done.stderr
    assert "[token]" in done.stderr and TOKEN not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_missing_is_said_before_anything_is_sent(hub, folder, tmp_path):
    done = push(hub, folder, "--hub", "hf", "--repo", "me/s", HF_TOKEN=None)
    assert done.returncode == 2 and "HF_TOKEN is not set" in done.stderr
    done = push(hub, folder, "--hub", "modelscope", "--repo", "me/s", MODELSCOPE_API_TOKEN=None)
    assert done.returncode == 2 and "MODELSCOPE_API_TOKEN is not set" in done.stderr
    assert not hub.requests


@pytest.mark.parametrize(
    ("spoil", "arguments", "message"),
    [
        (None, ["--hub", "github", "--repo", "me/s"], "unknown; known: hf, modelscope, ms"),
        (None, ["--hub", "hf", "--repo", "shapes"], "expected ORG/NAME"),
        ("README.md", ["--hub", "hf", "--repo", "me/s"], "is not a finished Parquet folder"),
        ("data/train-00000-of-00001.parquet", ["--hub", "hf", "--repo", "me/s"], "not a finished"),
    ],
)
def test_bad_input_is_one_clear_error(folder, spoil, arguments, message):
    if spoil:
        (folder / spoil).unlink()
    done = CliRunner().invoke(app, ["data", "push", str(folder), *arguments])
    assert done.exit_code == 2 and message in done.stderr.replace("\n", " ")


def test_a_shard_that_is_cut_off_is_not_published(folder):
    file = folder / "data" / "train-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    done = CliRunner().invoke(app, ["data", "push", str(folder), "--hub", "hf", "--repo", "me/s"])
    assert done.exit_code == 2 and "cannot be read as Parquet" in done.stderr


def test_a_hub_out_of_reach_is_said(folder):
    class Nowhere:
        url = "http://127.0.0.1:9"

    done = push(Nowhere, folder, "--hub", "hf", "--repo", "me/s")
    assert done.returncode == 1 and "did not take" in done.stderr
    assert "Traceback" not in done.stderr and TOKEN not in done.stderr
