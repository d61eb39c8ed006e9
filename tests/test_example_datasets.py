"""The forms of examples/datasets over drawn records, as `vlrft data convert` reads them."""

import json

import pytest
from support.stored_sets import command, picture
from support.swift_run import REPOSITORY

from swift_vlrft.datasets import read_rows
from swift_vlrft.datasets.schemas import SCHEMAS

FOLDER = REPOSITORY / "examples" / "datasets"
CLICK = {"instruction": "close it", "img_filename": "0.png"}
PHRASE = {"ref_id": 1, "image_id": 9, "sentences": [{"sent_id": 3, "sent": "dog"}]}
OWLS = {"image": "0.png", "number": 6}
ASKED = {"question": "which brand?", "question_id": 4, "image_id": "0"}
COCO = {
    "images": [{"id": 9, "file_name": "0.png", "width": 400, "height": 200}],
    "annotations": [
        {"id": 11, "image_id": 9, "bbox": [40, 20, 80, 60]},
        {"id": 12, "image_id": 9, "bbox": [200, 100, 100, 50]},
    ],
}
ONE, TWO = "[100, 100, 300, 400]", "[500, 500, 750, 750]"
CASES = [
    ("screenspot", CLICK | {"bbox": [0.25, 0.5, 0.75, 1.0]}, "[[250, 500, 750, 1000]]"),
    ("screenspot", CLICK | {"bbox": [100, 100, 200, 100]}, "[[250, 500, 750, 1000]]"),
    (
        "screenspot",
        CLICK | {"bbox": [100, 100, 300, 200], "img_size": [400, 200]},
        "[[250, 500, 750, 1000]]",
    ),
    ("screenspot", CLICK | {"bbox": [300, 100, 200, 50]}, None),
    ("countbench", OWLS | {"question": "How many owls?"}, "6"),
    ("countbench", OWLS | {"text": "Set of Six owls"}, "6"),
    ("countbench", OWLS | {"text": "Set of owls"}, None),
    ("text_vqa", ASKED | {"answers": ["nous", "Dakota", "dakota"]}, "Dakota"),
    ("text_vqa", ASKED | {"answers": "nous"}, None),
    ("grefcoco", PHRASE | {"ann_id": [11]}, ONE),
    ("grefcoco", PHRASE | {"ann_id": [-1]}, "No Objects"),
    ("grefcoco", PHRASE | {"ann_id": [11, 12]}, f"'Position': {TWO}"),
    ("grefcoco", PHRASE | {"ann_id": [99]}, None),
]


@pytest.mark.parametrize(("form", "record", "gold"), CASES)
def test_a_record_is_read_or_named(form, record, gold, tmp_path):
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
