"""What `vlrft try` makes of a set before anything is trained."""

import json

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.road import remove_road
from swift_vlrft.demo.rows import Row, stored
from swift_vlrft.demo.split import LEAST, write_halves


def rows(n, *, answer=lambda i: f"<answer>{i % 3}</answer>", each=1):
    from PIL import Image

    found = []
    for i in range(n):
        image = Image.new("RGB", (56, 56), (i % 256, i // 256, 7))
        found += [
            Row(image, f"How many, {k}?", answer(i), {"task": "counting"}) for k in range(each)
        ]
    return [stored(row) for row in found]


def test_no_picture_is_in_both_halves_however_many_rows_ask_about_it(tmp_path):
    write_folder(tmp_path / "set", {"train": rows(50, each=3)})
    halves = write_halves(tmp_path / "set", tmp_path / "data")
    assert halves.train == {"counting": 120} and halves.test == {"counting": 30}
    seen = {}
    for half in ("train", "test"):
        stored_rows = rows_of(open_set(tmp_path / "data", split=half))
        seen[half] = {row.image["bytes"] for row in stored_rows}
    assert len(seen["train"]) == 40 and len(seen["test"]) == 10
    assert not seen["train"] & seen["test"]


def test_the_splits_of_a_set_are_kept(tmp_path):
    write_folder(tmp_path / "set", {"train": rows(9), "validation": rows(4), "extra": rows(2)})
    halves = write_halves(tmp_path / "set", tmp_path / "data")
    assert halves.train == {"counting": 9} and halves.test == {"counting": 4}
    assert halves.notes == ["the split extra is not used"]


def test_bad_rows_are_left_out_and_said(tmp_path):
    made = rows(60)
    made[7]["solution"] = "<answer>many</answer>"
    write_folder(tmp_path / "set", {"train": made})
    halves = write_halves(tmp_path / "set", tmp_path / "data")
    assert sum(halves.train.values()) + sum(halves.test.values()) == 59
    assert "rows of the split train that are left out: 1, as of " in halves.notes[0]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (rows(LEAST - 1), f"has {LEAST - 1} pictures that are fit to train on; {LEAST} or more"),
        (rows(60, answer=lambda i: "<answer>2</answer>"), "every row has the same answer"),
    ],
)
def test_a_set_that_teaches_nothing_is_refused_before_training(made, said, tmp_path):
    write_folder(tmp_path / "set", {"train": made})
    with pytest.raises(DataError, match=said):
        write_halves(tmp_path / "set", tmp_path / "data")
    result = CliRunner().invoke(app, ["try", str(tmp_path / "set"), "--out", str(tmp_path / "o")])
    assert result.exit_code == 2 and said in " ".join(str(result.output).split())
    assert not (tmp_path / "o" / "start").exists()


def test_another_road_is_not_overwritten(tmp_path):
    mine = tmp_path / "out" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("years of work")
    write_folder(tmp_path / "set", {"train": rows(60)})
    command = ["try", str(tmp_path / "set"), "--out", str(mine.parent)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1 and "is not empty" in result.output
    assert mine.read_text() == "years of work"
    (mine.parent / "road.json").write_text(
        json.dumps({"road": {"data": "elsewhere"}, "halves": {}})
    )
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1 and "holds the road of elsewhere" in result.output


def test_only_an_earlier_road_is_removed(tmp_path):
    for name in ("road.json", "summary.json", "notes.txt", "data/x", "mine/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    remove_road(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "notes.txt"]
    (tmp_path / "data").mkdir()
    remove_road(tmp_path)  # without its road.json it is somebody's
    assert (tmp_path / "data").exists()
