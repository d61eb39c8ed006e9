"""Sets of points, texts, numbers, lists, orders and phrases without a target: checked, converted,
in other box formats, trained on, shown.
"""

# ruff: noqa: E501 - rows of a table stay on one line

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from support.drawn_rows import MIXED, mixed_rows
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import DataError, read_rows
from swift_vlrft.datasets.box_format import row_in_box_format, subset_of
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.report import Report
from swift_vlrft.datasets.row import Row, RowLocation
from swift_vlrft.datasets.training import LoadOptions, streamed_rows, training_set
from swift_vlrft.demo.data import write_parquet
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.rewards import REWARDS, TASK_NAMES

NAMES = [name for name, reward in REWARDS.items() if reward.task and reward.task.name in MIXED]


def run(*arguments):
    result = CliRunner().invoke(app, ["data", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set") / "mixed"
    write_parquet(mixed_rows(random.Random(1), 60), folder)
    return folder


def right_answer(task, solution):
    gold = TASK_NAMES[task].read_gold(solution)
    of_gold = TASK_NAMES[task].answer_of
    return f"<think>t</think><answer>{of_gold(gold) if of_gold else gold_text(solution)}</answer>"


def test_a_set_of_all_tasks_is_fit_as_it_is_and_converted(mixed, tmp_path):
    code, said = run("convert", mixed, tmp_path / "made")
    assert code == 0, said
    for folder in (mixed, tmp_path / "made"):
        code, said = run("check", folder, "--json")
        report = json.loads(said)
        assert code == 0 and report["good"] == 60 and report["tasks"] == dict.fromkeys(MIXED, 10)
        assert report["rewards"].keys() == set(NAMES)
    rows = list(read_rows(tmp_path / "made"))
    assert {row.columns["tolerance"] for row in rows} == {None, "0", "0.05"}
    empty = [row.columns["task"] for row in rows if "No Objects" in row.solution]
    assert set(empty) == {"grounding", "pointing"}  # both have rows without a target


def test_each_row_trains_under_the_rewards_of_its_task_alone(mixed, tmp_path):
    options = LoadOptions(cache=tmp_path / "cache", rewards=tuple(NAMES))
    made, _ = training_set(open_set(mixed, keep_going=True), options)
    columns = {name: made[name][:] for name in made.column_names if name != "images"}
    texts = list(map(right_answer, columns["task"], columns["solution"]))
    for name in NAMES:
        own = [task == REWARDS[name].task.name for task in columns["task"]]
        assert REWARDS[name](texts, **columns) == [1.0 if one else None for one in own]


def test_the_rows_of_some_tasks_alone(mixed, tmp_path):
    def loaded(*tasks, streamed=False):
        options = LoadOptions(cache=tmp_path / "cache", rewards=tuple(NAMES), tasks=tasks)
        stored = open_set(mixed, keep_going=True)
        if not streamed:
            made, report = training_set(stored, options)
            assert report.good == report.rows == len(made)
            return list(made["task"]), list(made["solution"])
        rows = list(streamed_rows(rows_of(stored), options, Report(mixed)))
        return [row["task"] for row in rows], [row["solution"] for row in rows]

    tasks, solutions = loaded()
    for wanted in (("ocr",), ("number", "grounding")):
        kept = [(t, s) for t, s in zip(tasks, solutions, strict=True) if t in wanted]
        assert len(kept) == 10 * len(wanted)
        for streamed in (False, True):
            assert list(zip(*loaded(*wanted, streamed=streamed), strict=True)) == kept
    with pytest.raises(
        DataError, match="no row is of counting; there are 10 grounding, 10 pointing, 10 list"
    ):
        loaded("counting")


@pytest.mark.parametrize(
    ("names", "made"),
    [
        ([], ("norm1000", ())),
        (["default"], ("norm1000", ())),
        (["ocr"], ("norm1000", ("ocr",))),
        (["native", "ocr", "list"], ("native", ("ocr", "list"))),
        (["ocr", "pixels"], ("pixels", ("ocr",))),
        (["Ocr"], "unknown subset 'Ocr'; known box formats: norm1000.*known tasks.*: detection"),
        (["native", "pixels"], "several box formats: native, pixels; name one"),
    ],
)  # fmt: skip
def test_what_a_subset_asks_for(names, made):
    if isinstance(made, tuple):
        assert subset_of(names, "set") == made
    else:
        with pytest.raises(DataError, match=made):
            subset_of(names, "set")


@pytest.mark.parametrize(
    ("asked", "y_first", "back"),
    [
        ("Point at it. Coordinates are from 0 to 1000.", "Point at it. Coordinates are from 0 to 1000.\nWrite each point as {\"point\": [y, x]}.", None),
        ("As [{\"point_2d\": [x, y]}].", "As [{\"point\": [y, x]}].", None),
        ("As {'coordinate': [x, y]}", "As {'point': [y, x]}", "As {'point_2d': [x, y]}"),
        ("Output (x, y) in 0-1000.", "Output {\"point\": [y, x]} in 0-1000.", "Output {\"point_2d\": [x, y]} in 0-1000."),
    ],
)  # fmt: skip
def test_a_prompt_for_points_asks_for_points_in_every_box_format(asked, y_first, back):
    place, columns = RowLocation(Path("a")), {"task": "pointing", "frame": "norm1000"}
    row = Row(place, {}, asked, "[[100, 200, 300, 400]]", columns)
    made = row_in_box_format(row, "yx1000", (640, 480), (644, 476))
    assert made.problem.startswith(y_first) and "box" not in made.problem
    assert made.solution == '[{"box_2d": [200, 100, 400, 300]}]'
    for text in ('{"point": [300, 200]}', "[200, 300]"):  # y-first by its key alone
        answer = f"<answer>{text}</answer>"
        assert REWARDS["vlrft_pointing"]([answer], [made.solution]) == [1.0]
    again = row_in_box_format(made, "norm1000", (640, 480), (640, 480))
    if back:
        assert again.problem.startswith(back)
    assert "[y, x]" not in again.problem and "y1" not in again.problem
    assert read_boxes(again.solution).boxes == [(100, 200, 300, 400)]
    native = row_in_box_format(row, "pixels", (640, 480), (644, 476), "bbox_2d")
    assert '"bbox_2d"' in native.solution and "bbox" not in native.problem
    assert "point_2d" in native.problem


def test_tags_of_points_are_refused_where_points_have_a_key():
    place, columns = RowLocation(Path("a")), {"task": "pointing", "frame": "norm1000"}
    row = Row(place, {}, 'As <point x="" y="">', "[100, 200, 300, 400]", columns)
    with pytest.raises(ValueError, match="<point"):
        row_in_box_format(row, "yx1000", (640, 480), (644, 476))


def test_gold_of_pointing_is_rewritten_in_pixels(mixed):
    rows = [row for row in read_rows(mixed) if row.columns["task"] in ("pointing", "grounding")]
    for row in rows:
        made = row_in_box_format(row, "pixels", (112, 112), (560, 280))
        assert "in pixels, x from 0 to 560 and y from 0 to 280" in made.problem
        pairs = zip(*(read_boxes(gold_text(r.solution)).boxes for r in (row, made)), strict=True)
        for old, new in pairs:
            assert new == pytest.approx([v * (0.56, 0.28)[n % 2] for n, v in enumerate(old)])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"task": "number", "solution": "12", "tolerance": -1}, "the tolerance -1 is no number from 0 up"),
        ({"task": "number", "solution": "12", "tolerance": 5}, "the tolerance 5 is over 1, so that 0 would be right, too (0.05"),
        ({"task": "number", "solution": "12", "tolerance": 1}, None),
        ({"task": "number", "solution": "12", "tolerance": "wide"}, "the tolerance 'wide' is no"),
        ({"task": "number", "solution": "12", "tolerance": True}, "the tolerance True is no"),
        ({"task": "number", "solution": "12 or 13"}, "'12 or 13' cannot be read as one number (number)"),
        ({"task": "number", "solution": [12]}, None),
        ({"task": "number", "solution": [12, 13]}, "cannot be read as one number"),
        ({"task": "pointing", "solution": "[10, 20]"}, "cannot be read as one or several boxes or 'No Objects'"),
        ({"task": "pointing", "solution": "[[1, 2, 3, 4], [9, 9, 1, 1]]"}, "box 2 of 2 is not four numbers"),
        ({"task": "pointing", "solution": "[10, 20, 1300, 40]"}, "reaches beyond norm1000"),
        ({"task": "pointing", "solution": [[10, 20, 30, 40]], "frame": "inches"}, "unknown frame 'inches'"),
        ({"task": "pointing", "solution": [[10, 20, 30, 40]]}, None),
        ({"task": "ocr", "solution": "<answer> </answer>"}, "cannot be read as a text of 1 to 10000 characters"),
        ({"task": "ocr", "solution": "x" * 10_001}, "cannot be read as a text of 1 to 10000 characters"),
        ({"task": "ocr", "solution": ["a", "b"]}, "cannot be read as a text"),
        ({"task": "ocr", "solution": ["a"]}, "of several accepted texts one is the solution, the others are its aliases"),
        ({"task": "ocr", "solution": "a", "aliases": ["b" * 10_001]}, "aliases have at most 10000 characters together"),
        ({"task": "ocr", "solution": "a", "aliases": ["b" * 6_000, "c" * 6_000]}, "the alias 'ccc"),
        ({"task": "ocr", "solution": "a", "aliases": [" b ", "", "b", "a"]}, None),
        ({"task": "ocr", "solution": 12}, None),
        ({"task": "list", "solution": ["a", {"b": 1}]}, "cannot be read as a list of names"),
        ({"task": "list", "solution": ["a", "b"]}, None),
        ({"task": "list", "solution": []}, None),
        ({"task": "ordering", "solution": ["a", "b", "A"]}, "cannot be read as a list of distinct names"),
        ({"task": "ordering", "solution": []}, "cannot be read as a list of distinct names"),
        ({"task": "grounding", "solution": "No Objects"}, None),
        ({"task": "grounding", "solution": "[1, 2, 3, 4] [1, 2, 3, 4]"}, "exactly one box or 'No Objects'"),
        ({"task": "points", "solution": "[1, 2, 3, 4]"}, "unknown task 'points'"),
    ],
)  # fmt: skip
def test_gold_that_cannot_be_read_is_named_by_file_and_row(row, said, tmp_path):
    write_parquet(mixed_rows(random.Random(0), 1), tmp_path / "images")
    (image,) = read_rows(tmp_path / "images")
    (tmp_path / "a.png").write_bytes(image.image["bytes"])
    path = tmp_path / "rows.jsonl"
    good = {"image": "a.png", "problem": "?", "task": "list", "solution": "a, b"}
    path.write_text("".join(json.dumps(one) + "\n" for one in (good, good | row)))
    code, output = run("check", path, "--json")
    problems = json.loads(output)["problems"]
    if said is None:
        assert code == 0 and not problems
        return
    (found,) = problems
    assert code == 1 and said in found["problem"]
    assert "rows.jsonl, row 1" in json.dumps(found) or found.get("row") == 1
    made, output = run("convert", path, tmp_path / "made")
    assert made != 0 and "rows.jsonl, row 1" in output.replace("\n", "") and said[:20] in output


def test_most_texts_are_proposed_for_no_reward_that_reads_anything(tmp_path):
    """A set that states no task is not called one of texts, lists, orders or points."""
    (row,) = mixed_rows(random.Random(0), 1)
    write_parquet([replace(row, solution="Exit", columns={})], tmp_path / "plain")
    assert json.loads(run("check", tmp_path / "plain", "--json")[1])["rewards"].keys() == {
        "vlrft_classification"
    }
    named = json.loads(run("check", tmp_path / "plain", "--json", "--reward", "vlrft_ocr")[1])
    assert {"vlrft_ocr", "vlrft_ocr_exact"} <= named["rewards"].keys() and named["good"] == 1


def test_the_page_of_a_set_shows_boxes_and_what_is_not_there(mixed, tmp_path):
    code, said = run("show", mixed, "--rows", 60, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    empty = sum("No Objects" in row.solution for row in read_rows(mixed))
    assert code == 0 and page.count('class="empty">No Objects') == empty > 0
    assert page.count('<div class="box ') == 20 - empty
