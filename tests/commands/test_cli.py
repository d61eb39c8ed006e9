"""The command vlrft, as a person types it."""

import json
import random
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image
from support.command_line import parsed, vlrft
from support.drawn_rows import boxed_rows
from support.finished_run import write_run
from typer.main import get_command

from swift_vlrft.cli import app
from swift_vlrft.commands.output import PANELS, show, table
from tests.support.parquet import write_parquet

RECIPES = Path(__file__).parents[2] / "recipes"


def test_recipe_lists_names_and_prints_paths():
    names = vlrft("recipe").output.split()
    assert "qwen2_5_vl_3b/detection_4x80g" in names and len(names) > 10
    for name in ("qwen2_5_vl_3b/detection_4x80g", "qwen2_5_vl_3b/detection_server_6+2x80g.sh"):
        assert Path(vlrft("recipe", name).output.strip()).is_file()


def helps(command) -> list[str]:
    """The help of a command and of all below it."""
    below = getattr(command, "commands", {}).values()
    return [command.help or "", *(text for one in below for text in helps(one))]


EXAMPLES = [
    *(title.partition(": ")[2] for title in PANELS),
    *(line for text in helps(get_command(app)) for line in re.findall("Example: (.*)", text)),
]
ELSEWHERE = {"doctor", "try", "demo", "agree", "eval", "publish", "data push", "data convert"}
"""What takes minutes, a hub or data of others: its example is read here, and other tests run it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder in which the files of the examples lie."""
    folder = tmp_path_factory.mktemp("place")
    rows = boxed_rows(random.Random(0), 4)
    for name in ("my_set", "coco8"):
        write_parquet(rows, folder / "data" / name)
    run = write_run(folder / "runs")
    log = {"completion": ["No Objects"], "solution": [rows[0].solution], "step": ["1"]}
    log["vlrft_detection_iou"] = [0.0]
    (folder / "output" / "v0").mkdir(parents=True)
    (folder / "output" / "v0" / "completions.jsonl").write_text(json.dumps(log) + "\n")
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 32, 24]}
    (run / "images").mkdir()
    for n in (1, 2):
        Image.new("RGB", (64, 48)).save(folder / f"{n}.png")
    images = [{"id": n, "file_name": f"{n}.png", "width": 64, "height": 48} for n in (1, 2)]
    content = {"images": images, "categories": [{"id": 1, "name": "cat"}]}
    content["annotations"] = [box | {"id": n, "image_id": n, "area": 768} for n in (1, 2)]
    (folder / "instances.json").write_text(json.dumps(content))
    (folder / "images").symlink_to(folder)
    (folder / "recipes").symlink_to(RECIPES)
    for name in ("run.sh", "detection_4x80g.sh"):
        (folder / name).symlink_to(RECIPES / "qwen2_5_vl_3b" / "detection_4x80g.sh")
    return folder


def test_every_command_has_an_example():
    assert all("Example: " in text for text in helps(get_command(app)))
    assert [name for names in PANELS.values() for name in names] == list(
        get_command(app).list_commands(None)
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_of_the_help_runs(line, place, monkeypatch):
    monkeypatch.chdir(place)
    words = shlex.split(re.search(r"vlrft ([^)&]+)", line)[1].strip('"'))
    if {words[0], " ".join(words[:2])} & ELSEWHERE:
        assert parsed(["vlrft", *words]).params
        return
    result = vlrft(*words)
    assert result.exit_code < 2, result.output  # 1: an answer, too
    assert result.output.strip()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("tiny llava x", "known: qwen2_5_vl, qwen2_vl, glm4v"),
        ("tiny qwen2_vl .", "exists"),
        ("recipe llava/detection", "demo_cpu"),
        ("data show .", ""),
        # Options are taken as ms-swift spells its flags.
        ("data check . --max-length 5", "--model"),
        ("data check . --max_length 5", "--model"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(command, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = vlrft(*command.split())
    assert result.exit_code == 2 and said in result.stderr
    assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1


def test_a_table_in_a_file_is_plain_and_breaks_no_name(capsys):
    path = "/data/" + "x" * 300
    drawn = table("path", ">rows", "why", title="files", wraps=("why",))
    drawn.add_row(path, "3", "a reason of several words " * 8)
    show(drawn)
    title, heading, row = capsys.readouterr().out.splitlines()
    assert (title.strip(), heading.split()) == ("files", ["path", "rows", "why"])
    assert row.split()[:3] == [path, "3", "a"] and row.isascii()
