"""The forms of examples/datasets over drawn records, as `vlrft data convert` reads them."""

import json
from pathlib import Path

import pytest
from support.stored_sets import command, picture
from support.swift_run import REPOSITORY

from swift_vlrft.datasets import read_rows
from swift_vlrft.datasets.schemas import SCHEMAS

FOLDER = REPOSITORY / "examples" / "datasets"
COCO = {
    "images": [{"id": 9, "file_name": "0.png", "width": 400, "height": 200}],
    "annotations": [
        {"id": 11, "image_id": 9, "bbox": [40, 20, 80, 60]},
        {"id": 12, "image_id": 9, "bbox": [200, 100, 100, 50]},
    ],
}
CASES = list(map(json.loads, Path(__file__).with_name("example_datasets.jsonl").open()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["form"])
def test_a_record_is_read_or_named(case, tmp_path):
    form, record, gold = case["form"], case["record"], case["gold"]
    before = list(SCHEMAS)
    for name in ("0.png", "0.jpg"):
        (tmp_path / name).write_bytes(picture(size=(400, 200)))
    (tmp_path / "instances.json").write_text(json.dumps(COCO))
    file = tmp_path / "set.json"
    file.write_text(json.dumps({"data": [record]}))
    try:
        words = ("data", "convert", file, tmp_path / "out", "--external-plugins")
        code, said = command(*words, FOLDER / f"{form}.py")
    finally:
        SCHEMAS[:] = before
    if gold is None:
        assert code == 2 and "row 0: " in said
        return
    assert code == 0, said
    (row,) = read_rows(tmp_path / "out")
    assert f"<answer>{gold}</answer>" == row.solution or gold in row.solution
    assert row.columns["task"] in ("pointing", "counting", "ocr", "grounding", "detection")


def test_a_plugin_that_cannot_be_run_is_named(tmp_path):
    (tmp_path / "own.py").write_text("import nowhere\n")
    code, said = command("data", "check", tmp_path, "--external-plugins", tmp_path / "own.py")
    assert code == 2 and "own.py" in said and "nowhere" in said
