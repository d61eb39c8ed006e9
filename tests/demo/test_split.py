"""What `vlrft try` makes of a set before anything is trained."""

import json
import re

import pytest
from support.command_line import vlrft

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.clips import write_drawn
from swift_vlrft.demo.rows import FORMAT, Row, stored
from swift_vlrft.demo.split import LEAST, write_halves
from swift_vlrft.demo.training import TrialError
from swift_vlrft.demo.trial import TrialConfig, begin_trial, remove_trial

pytestmark = pytest.mark.slow  # torch is imported


def rows(n, *, answer=lambda i: f"<answer>{i % 3}</answer>", each=1):
    from PIL import Image

    found = []
    for i in range(n):
        image = Image.new("RGB", (56, 56), (i % 256, i // 256, 7))
        found += [
            Row(image, f"How many, {k}? {FORMAT}", answer(i), {"task": "counting"})
            for k in range(each)
        ]
    return [stored(row) for row in found]


def boxed(n, height):
    made = rows(n, answer=lambda i: f"<answer>[{{'Position': [1, 2, {i + 9}, {height}]}}]</answer>")
    stated = {"problem": f"Where is the cup? {FORMAT}", "task": "detection", "frame": "norm1000"}
    return [row | stated for row in made]


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


def test_train_alone_is_divided_and_other_splits_are_named(tmp_path):
    splits = {"train": rows(50), "validation": rows(60)[50:]}
    write_folder(tmp_path / "set", splits)
    halves = write_halves(tmp_path / "set", tmp_path / "data")
    assert halves.train == {"counting": 40} and halves.test == {"counting": 10}
    assert halves.notes == ["the split validation is not used"]
    write_folder(tmp_path / "one", {"test": rows(50)})  # of another name, but alone
    assert write_halves(tmp_path / "one", tmp_path / "one_data").train == {"counting": 40}
    write_folder(tmp_path / "none", {"test": rows(50), "validation": rows(60)[50:]})
    with pytest.raises(DataError, match="its splits are validation, test; none is train"):
        write_halves(tmp_path / "none", tmp_path / "none_data")


def test_bad_rows_are_left_out_and_said(tmp_path):
    made = rows(60)
    made[7]["solution"] = "<answer>many</answer>"
    write_folder(tmp_path / "set", {"train": made})
    halves = write_halves(tmp_path / "set", tmp_path / "data")
    assert sum(halves.train.values()) + sum(halves.test.values()) == 59
    assert "rows that are left out: 1, such as " in halves.notes[0]


def test_a_prompt_that_the_family_cannot_be_asked_is_left_out_where_it_stands(tmp_path):
    made = boxed(60, 940)
    made[7]["problem"] = f"Where is the cup? Coordinates are relative to the centre. {FORMAT}"
    write_folder(tmp_path / "set", {"train": made})
    kept = write_halves(tmp_path / "set", tmp_path / "data")
    assert sum(kept.train.values()) + sum(kept.test.values()) == 60
    halves = write_halves(tmp_path / "set", tmp_path / "pixels", box_format="pixels")
    assert sum(halves.train.values()) + sum(halves.test.values()) == 59
    assert f"such as {tmp_path / 'set'}" in halves.notes[0]
    assert "row 7: the prompt says 'Where is the cup? Coord" in halves.notes[0]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (rows(LEAST - 1), f"has 39 different pictures .*; {LEAST} or more are needed"),
        (rows(60, answer=lambda i: "<answer>2</answer>"), "every row has the same answer"),
        (boxed(60, 40), "set: 60 of 60 boxes do not fit .* in percent"),
        (
            [row | {"task": "poetry"} for row in rows(60)],
            "has 0 different pictures.*unknown task 'poetry'",
        ),
    ],
)
def test_a_set_that_teaches_nothing_is_refused_with_the_reason(made, said, tmp_path):
    write_folder(tmp_path / "set", {"train": made})
    with pytest.raises(DataError, match=said):
        write_halves(tmp_path / "set", tmp_path / "data")
    result = vlrft("try", tmp_path / "set", "--out", tmp_path / "o")
    assert result.exit_code == 2 and re.search(said, " ".join(str(result.output).split()))
    assert not (tmp_path / "o" / "start").exists()


def test_rows_of_a_task_that_only_one_half_has_are_left_out_and_said(tmp_path):
    made = rows(61)
    made[60]["task"] = "ocr"
    write_folder(tmp_path / "set", {"train": made})
    halves = write_halves(tmp_path / "set", tmp_path / "data")
    assert {*halves.train} == {*halves.test} == {"counting"}
    assert halves.notes == ["rows of the task ocr are left out, as only one half has any: 1"]


@pytest.mark.parametrize(
    ("out", "family", "said"),
    [
        ("set/out", "internvl", "lies inside "),
        ("a:b", "internvl", "has ':' in its name"),
        ("a#b", "internvl", "has '#' in its name"),
        ("mine.txt/x", "internvl", "mine.txt"),
        ("out", "nonsense", "unknown model family 'nonsense'; known: "),
        ("out", "chatglm4v", "chatglm4v has no tiny model that learns on a CPU; known: "),
    ],
)
def test_what_cannot_be_gone_leaves_nothing_behind(out, family, said, tmp_path):
    write_folder(tmp_path / "set", {"train": rows(60)})
    (tmp_path / "mine.txt").write_text("mine")
    there = sorted(tmp_path.rglob("*"))
    command = ["try", str(tmp_path / "set"), "--out", str(tmp_path / out), "--family", family]
    result = vlrft(*command)
    assert result.exit_code in (1, 2) and said in " ".join(result.output.split())
    assert sorted(tmp_path.rglob("*")) == there


def test_a_trial_does_not_go_on_with_rows_that_have_changed_since(tmp_path):
    write_folder(tmp_path / "set", {"train": rows(60)})
    config = TrialConfig(str(tmp_path / "set"))
    begun = begin_trial(config, tmp_path / "out")
    assert begin_trial(config, tmp_path / "out") == begun
    (tmp_path / "set" / "more.txt").write_text("new")
    with pytest.raises(TrialError, match="has changed since .* was begun; name another folder"):
        begin_trial(config, tmp_path / "out")


def test_another_trial_is_not_overwritten(tmp_path):
    mine = tmp_path / "out" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("years of work")
    write_folder(tmp_path / "set", {"train": rows(60)})
    command = ["try", str(tmp_path / "set"), "--out", str(mine.parent)]
    result = vlrft(*command)
    assert result.exit_code == 1 and "is no empty folder" in result.output
    assert mine.read_text() == "years of work"
    (mine.parent / "trial.json").write_text(
        json.dumps({"config": {"data": "elsewhere"}, "halves": {}})
    )
    result = vlrft(*command)
    assert result.exit_code == 1 and "holds the trial of elsewhere" in result.output


def test_only_an_earlier_trial_is_removed(tmp_path):
    for name in ("trial.json", "summary.json", "notes.txt", "data/x", "mine/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    remove_trial(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "notes.txt"]
    (tmp_path / "data").mkdir()
    remove_trial(tmp_path)  # without its trial.json it is somebody's
    assert (tmp_path / "data").exists()


def test_videos_lie_where_they_are_and_none_is_in_both_halves(tmp_path):
    write_drawn(tmp_path / "set", count=42)
    halves = write_halves(tmp_path / "set", tmp_path / "data")
    assert (halves.train, halves.test) == ({"temporal": 34}, {"temporal": 8})
    train, test = (
        {row.image["path"] for row in rows_of(open_set(tmp_path / "data", split=half))}
        for half in ("train", "test")
    )
    assert train | test == {str(p) for p in (tmp_path / "set").glob("*.mp4")} and not train & test
    with pytest.raises(TrialError, match="give --family qwen2_5_vl"):
        begin_trial(TrialConfig(str(tmp_path / "set")), tmp_path / "out")
