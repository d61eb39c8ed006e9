"""The commands on a full disk: one message, exit code 2, and nothing that was there is lost."""

import json
import shutil
import subprocess
import sys

import pytest
from support.command_line import vlrft
from support.finished_run import write_run
from support.full_disk import no_room, small_disk
from support.nightly import first_now
from support.written_sets import digests, row

from swift_vlrft.datasets.writer import write_folder

RECIPE = """swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --dataset d \\
    --reward_funcs vlrft_format --external_plugins "$(vlrft plugin)" --tuner_type lora \\
    --num_generations 8 --per_device_train_batch_size 8 --max_completion_length 512 "$@"
"""
PLANNED = ("--gpus", "8x80")
CARD = ("--card-only", "card", "--repo", "me/shapes", "--hub", "hf")
MODEL = ("--model", "Qwen/Qwen2.5-VL-3B-Instruct")
# What the command takes, what it writes, and how large a file may be.
COMMANDS = {
    "convert": (("data", "convert", "set", "out"), "out", 2000),
    "convert, shards": (("data", "convert", "set", "out"), "out", 12_000),
    "convert, not even a lock": (("data", "convert", "set", "out"), "out", 10),
    "show": (("data", "show", "set", "--out", "page.html"), "page.html", 2000),
    "eval": (("eval", "--predictions", "p.jsonl", "--out", "e"), "e/summary.json", 10),
    "report": (("report", "run/grpo"), "run/grpo/report.html", 100),
    "publish": (("publish", "run/grpo", *CARD), "card/", 10),
    "recipe new": (("recipe", "new", "new.sh", *MODEL, *PLANNED), "new.sh", 10),
    "check": (("check", "--fix", "old.sh"), "old.sh", 10),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A set of rows, a finished run, an answer, and recipes of today and of before."""
    folder = tmp_path_factory.mktemp("written")
    write_folder(folder / "set", {"train": [row(i) for i in range(400)]})
    write_run(folder / "run")
    line = {"id": "1", "completion": "<answer>a</answer>", "solution": "<answer>a</answer>"}
    (folder / "p.jsonl").write_text(json.dumps(line | {"task": "classification"}) + "\n")
    (folder / "r.sh").write_text(RECIPE)
    (folder / "old.sh").write_text(RECIPE.replace("--tuner_type", "--train_type"))
    return folder


@pytest.fixture
def here(written, tmp_path, monkeypatch):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("command", "target", "room"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_loses_nothing_and_succeeds_when_there_is_room(here, command, target, room):
    before = digests(here)
    with no_room(room):
        refused = vlrft(*command)
    assert refused.exit_code == 2, refused.output
    (line,) = [line for line in refused.output.splitlines() if "error:" in line]
    assert target in line and "a file of this size" in line
    assert digests(here) == before
    done = vlrft(*command)
    assert done.exit_code in (0, 1), done.output  # 1: findings of `check`
    whole = digests(here)
    assert whole.keys() > before.keys() or command[0] == "check"
    # Once more: what was written is replaced as a whole, or stays.
    with no_room(room):
        vlrft(*command)
    assert digests(here) == whole


@pytest.mark.slow
def test_a_disk_that_is_really_full(here):
    with small_disk(here / "disk", "48k") as mounted:
        if not mounted:
            pytest.skip("only root may mount a disk")
        (here / "disk" / "page.html").write_text("old")
        for command in (
            ("data", "convert", "set", "disk/out"),
            ("data", "show", "set", "--rows", "400", "--out", "disk/page.html"),
        ):
            done = vlrft(*command)
            assert done.exit_code == 2 and "(0 MB free in " in done.output, done.output
        assert [file.read_text() for file in (here / "disk").rglob("*.*")] == ["old"]


@pytest.mark.slow
@pytest.mark.parametrize("command", first_now("data list", "plan r.sh --gpus 8x80"))
def test_a_result_that_cannot_be_printed_is_no_success(here, command):
    code = "from swift_vlrft.cli import app; app()"
    words = [sys.executable, "-c", code, *command.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "No space left on device" in done.stderr
