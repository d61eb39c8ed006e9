"""Sets in the form that they are published in: a table of records and of what is read from them, in
published_sets.jsonl, and what is done with the sets afterwards.

A line of the table is a set: ``changes`` to the ``record`` of its form make the records. ``reads``
says what rows say, ``bad`` which records are none and what is named, ``left_out`` how many
correctly make no row, and ``refused`` what is named where the file as a whole cannot be used. A
form's first line has its record and its files; the others name what differs from it.
"""

import copy
import json
from pathlib import Path

import pytest
from support.stored_sets import command, picture, train_on, write_table

from swift_vlrft.datasets import DataError, read_rows
from swift_vlrft.datasets.box_format import row_in_box_format
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.training import MADE, with_prompt
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.report.set_page import page_of

WIDE = (400, 200)
TABLE = Path(__file__).with_name("published_sets.jsonl").read_text().splitlines()
CASES = list(map(json.loads, TABLE))
FIRST = {case["form"]: case for case in reversed(CASES)}


def changed(record, change):
    """A copy with other values at places such as "images.1.id"; a list's end takes one more."""
    record = copy.deepcopy(record)
    for place, value in change.items():
        *outer, last = place.split(".")
        inner = record
        for name in outer:
            inner = inner[int(name) if isinstance(inner, list) else name]
        if isinstance(inner, list):
            inner[int(last) : int(last) + 1] = [value]
        else:
            inner[last] = value
    return record


def records_of(case):
    record = case.get("record", FIRST[case["form"]]["record"])
    records = [changed(record, change) for change in case.get("changes", [{}])]
    for one in records:
        image = one.get("image")
        if isinstance(image, dict) and image["bytes"] == "0.png":
            one["image"] = {"bytes": picture(size=WIDE), "path": "0.png"}
    return records


def write(folder, case):
    """The files of a case, or of a form's name and changes; the one that is opened."""
    case = FIRST[case["form"]] | case
    for name, size in case.get("pictures", {"0.png": WIDE}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(size=tuple(size)))
    for name, content in case.get("beside", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text)
    records, file = records_of(case), folder / case["file"]
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        return write_table(file, records)
    if file.suffix == ".jsonl":
        file.write_text("\n".join(map(json.dumps, records)))
        return file
    if "within" in case:  # the records are in an object, or the record is the whole file
        records = {case["within"]: records} if case["within"] else records[0]
    file.write_text(json.dumps(records))
    return file


def boxes_of(row):
    return read_boxes(gold_text(row.solution)).boxes


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['form']}: {case['why']}")
def test_records_of_every_form_are_read_as_the_table_says(case, tmp_path):
    path, bad = write(tmp_path / "set", case), case.get("bad", {})
    if "refused" in case:
        for use in (read_rows, lambda path: train_on(path, tmp_path)[0]):
            with pytest.raises(DataError) as error:
                list(use(path))
            assert case["refused"] in str(error.value)
        commands, out = [["check", path]], tmp_path / "out"
        if case["form"] == "coco":  # nothing of its rows can be used
            commands += [["convert", path, out], ["show", path, "--out", out]]
            commands += [["coco", path, path.parent, out, "--categories", "dog"]]
        for words in commands:
            code, said = command("data", *words)
            assert code > (case["form"] == "coco") and case["refused"] in said, (words, said)
            assert not out.exists()
        return
    report = check_set(path)
    problems = {str(one.place.row): one.problem for one in report.problems}
    assert problems.keys() == bad.keys() and report.left_out == case.get("left_out", 0)
    assert all(bad[row] in problem for row, problem in problems.items()), problems
    rows = [row for row in read_rows(path, keep_going=True) if str(row.place.row) not in bad]
    assert (report.rows, report.good) == (len(rows) + len(bad), len(rows)) and rows
    for row, reads in zip(rows, case.get("reads", [{}] * len(rows)), strict=True):
        gold = gold_text(row.solution)
        assert reads.get("answer", gold) == gold
        assert reads.get("solution", row.solution) == row.solution
        assert "boxes" not in reads or boxes_of(row) == [tuple(box) for box in reads["boxes"]]
        assert reads.get("asks", "") in row.problem
        for name, value in reads.get("columns", {}).items():
            assert row.columns.get(name) == value, name
    page_of(rows, "set")
    trained, told = train_on(path, tmp_path / "cache")
    assert list(map(str, told.problems)) == list(map(str, report.problems))
    written = convert_folder(path, tmp_path / "out", keep_going=True)
    assert (written.rows, written.notes) == (len(rows), report.notes)
    copied = list(read_rows(tmp_path / "out"))
    assert len(trained) == len(rows)
    for row, third in zip(trained, copied, strict=True):
        if third.columns["frame"] == row["frame"]:  # conversion leaves pixels as they are
            asked = row_in_box_format(third, row["frame"] or "", (1, 1), (1, 1))
            assert row["messages"] == with_prompt(asked)
            assert row["solution"] == third.solution
        assert further(row) == further(third.columns)


def further(columns):
    """The columns that rewards get besides those that every row has."""
    held = {name for name, value in columns.items() if value is not None}
    return held - {*MADE, "width", "height"}


def test_sets_of_all_forms_train_in_one_run(tmp_path):
    from datasets import concatenate_datasets

    cases = list(FIRST.values())
    paths = [write(tmp_path / str(n), case) for n, case in enumerate(cases)]
    sets = [train_on(path, tmp_path / "cache")[0] for path in paths]
    assert len(concatenate_datasets(sets)) == sum(map(len, sets)) > len(cases)
