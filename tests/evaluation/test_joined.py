"""Answers are joined with rows by ids: the score is that of the rows that they answer, or the file
is refused in one line.
"""

import json
from pathlib import Path

import pytest
from PIL import Image
from scored import answer, eval_json, refusal, run_json, write_lines
from support.command_line import vlrft

from swift_vlrft.evaluation.joined import same_gold

COLOUR, SHAPE = "What colour is it?", "What shape is it?"
# Picture, question, gold. One picture is asked twice.
ROWS = [
    ("0.png", COLOUR, "red"),
    ("0.png", SHAPE, "circle"),
    ("1.png", COLOUR, "blue"),
    ("2.png", COLOUR, "red"),
    ("3.png", COLOUR, "red"),
    ("4.png", SHAPE, "dark square"),
]
EVERY = list(range(len(ROWS)))
REFUSED = list(map(json.loads, Path(__file__).with_name("joins_refused.jsonl").open()))
"""``rows``: the row that each line answers; ``changed``: what the lines say otherwise."""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """With the rows: set.jsonl of no ids, ids.jsonl of the ids x0, x1, .., same.jsonl of one id."""
    monkeypatch.chdir(tmp_path)
    for n in range(5):
        Image.new("RGB", (8 + n, 8), (n * 30, 0, 0)).save(f"{n}.png")
    rows = [
        {"image": name, "problem": problem, "solution": f"<answer>{gold}</answer>"}
        for name, problem, gold in ROWS
    ]
    write_lines(tmp_path / "set.jsonl", rows)
    write_lines(tmp_path / "ids.jsonl", [row | {"id": f"x{n}"} for n, row in enumerate(rows)])
    write_lines(tmp_path / "same.jsonl", [row | {"id": 7} for row in rows])
    return tmp_path


def whole_line(n: int, **changed) -> dict:
    """A line with question, image and gold, and the right answer, but without an id."""
    name, problem, gold = ROWS[n]
    line = {"completion": answer(gold), "solution": f"<answer>{gold}</answer>"}
    return line | {"prompt": f"<image>{problem}", "image": str(Path(name).absolute())} | changed


def bare_line(n: int, **changed) -> dict:
    """Without question, image and gold."""
    return {"id": n, "completion": answer(ROWS[n][2])} | changed


KINDS = {"whole": whole_line, "bare": bare_line}


def joined(lines: list[dict], join: str | None = None, gold: str = "set.jsonl") -> tuple:
    file = write_lines(Path("p.jsonl"), lines)
    arguments = file, "--gold", gold, "--task", "classification"
    return *arguments, *(("--join", join) if join else ())


def accuracy(*arguments) -> float:
    return eval_json(*joined(*arguments))["metrics"]["accuracy"]["value"]


def test_lines_find_their_rows_in_any_order(folder):
    assert accuracy([bare_line(n) for n in EVERY[::-1]], "id") == 1.0
    assert accuracy([whole_line(n, id=f"x{n}") for n in EVERY[::-1]], "id", "ids.jsonl") == 1.0
    for gold in ("Red", "<answer> red. </answer>", '"red"'):
        assert accuracy([whole_line(0, id=0, solution=gold)], "id") == pytest.approx(1 / 6)


def test_missing_rows_are_unanswered_and_unknown_ones_left_out(folder):
    lines = [bare_line(0, id="y"), *(bare_line(n, id=f"x{n}") for n in EVERY[1:])]
    summary = eval_json(*joined(lines, "id", "ids.jsonl"))
    assert summary["metrics"]["accuracy"]["value"] == pytest.approx(5 / 6)
    assert summary["named"] == {
        "rows that the data set does not have, left out": ["line 1: id y"],
        "rows missing from the predictions, scored as unanswered": ["0"],
    }


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case['join']}: {case['why']}")
def test_what_cannot_be_joined_or_contradicts_its_row_is_refused_in_one_line(folder, case):
    lines = []
    for n in case["rows"]:
        changed = dict(case["changed"])
        if isinstance(changed.get("id"), str):
            changed["id"] = changed["id"].format(row=n, next=n + 1)
        lines.append(KINDS[case["kind"]](n, **changed))
    arguments = joined(lines, case["join"], f"{case['set']}.jsonl")
    text = refusal("eval", "--predictions", *arguments)
    assert case["said"] in text and text.count("error:") == 1


def test_golds_are_the_same_however_they_are_written():
    assert same_gold("[0.1, 0.1, 0.2, 0.2]", "(0.1,0.10),(0.2,0.2)")
    assert not same_gold("[0.1, 0.1, 0.2, 0.2]", "[0.4, 0.4, 0.9, 0.9]")
    cat, dog = (f"[{{'Position': [1, 1, 9, 9], 'label': '{name}'}}]" for name in ("cat", "dog"))
    assert same_gold(cat, cat.replace("cat", "Cat")) and not same_gold(cat, dog)
    assert same_gold("4", " 4.") and not same_gold("4", "5") and not same_gold("4", "")
    assert same_gold("No Objects", "[]") and not same_gold("No Objects", dog)


def test_two_files_are_compared_by_their_ids_alone(folder):
    def compared(first: list[dict], second: list[dict]) -> tuple:
        files = (write_lines(Path("a.jsonl"), first), write_lines(Path("b.jsonl"), second))
        return "compare", *files, "--task", "classification"

    lines = [whole_line(n, id=n) for n in EVERY]
    assert run_json(*compared(lines, lines[::-1]))["rows"] == 6
    nameless = [whole_line(n) for n in EVERY]
    assert "line 1 of A has no id" in refusal(*compared(nameless, lines))
    assert "line 1 of B has no id" in refusal(*compared(lines, nameless))
    repeated = [line | {"id": "7"} for line in lines]
    assert "line 1 and line 2 of A answer the same row, 7" in refusal(*compared(repeated, repeated))
    unsolved = [line | {"solution": None} for line in lines]
    assert "--gold SET" in refusal(*compared(unsolved, unsolved))
    assert vlrft(*compared(lines, lines), "--join", "id").exit_code == 2  # it has no such option
