"""The box formats as subsets, ``PATH:unit`` or ``PATH:native``, in every command on data."""

from pathlib import Path

import pytest
from PIL import Image
from support.stored_sets import GOLD
from support.written_sets import check, data, write_rows

from swift_vlrft.commands.data_check import asked_format
from swift_vlrft.datasets import DataError, Row
from swift_vlrft.datasets.box_format import native_format, row_in_box_format
from swift_vlrft.datasets.build import PROMPT
from swift_vlrft.families import FAMILIES
from swift_vlrft.geometry.box_format import SUBSETS
from swift_vlrft.parsing.boxes import read_boxes

SIZE = (640, 480)
DOG = PROMPT.replace("{category}", "dog")
ROW = {"image": "1.png", "problem": DOG, "solution": GOLD, "task": "detection"}


@pytest.fixture
def shapes(tmp_path):
    Image.new("RGB", SIZE).save(tmp_path / "1.png")
    solutions = [GOLD, "<answer>No Objects</answer>", "[100, 200, 101, 999]"]
    return write_rows(tmp_path / "set.jsonl", *(ROW | {"solution": s} for s in solutions))


@pytest.mark.parametrize("name", FAMILIES)
def test_native_is_what_the_family_writes(name):
    """Numbers, key and prompt of the family's own answer for the same box."""
    known = FAMILIES[name]
    if known.box_format is None:
        with pytest.raises(DataError, match=known.name):
            native_format("set", known)
        return
    box_format, key = native_format("set", known)
    assert (box_format, key) == (known.box_format, known.box_key)
    row = Row(None, {}, DOG, GOLD, {"task": "detection", "frame": "norm1000"})
    row = row_in_box_format(row, box_format, SIZE, SIZE, key)
    (box,) = read_boxes(row.solution.split("answer>")[1][:-2]).boxes
    own = known.box_answer if box_format != "pixels" else "[163, 145, 186, 175]"
    scale = 1000 if box_format == "unit" else 1
    assert [value * scale for value in box] == pytest.approx(read_boxes(own).boxes[0])
    mark = f"'{key or 'Position'}': ["
    assert mark in row.solution and mark in row.problem and "'Confidence': 1}" in row.solution


@pytest.mark.parametrize(
    ("model", "box_format", "key"),
    [
        ((None, "qwen2_5_vl"), "pixels", "bbox_2d"),
        ((None, "gemma4"), "yx1000", "box_2d"),
        # its type in ms-swift is GLM-4v's; a name or folder tells them apart
        (("zai-org/cogagent-9b-20241220", None), "norm1000", None),
        ((None, "chatglm4v"), None, "was not trained to write boxes"),
        ((None, "qwen2"), None, "none is known for"),
    ],
)
def test_native_is_that_of_the_commands_model(model, box_format, key):
    if box_format is None:
        with pytest.raises(ValueError, match=key):
            asked_format(Path("set:native"), *model)
    else:
        assert asked_format(Path("set:native"), *model)[1:3] == (box_format, key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pixels", "unit", "yx1000"])
def test_check_takes_every_format(name, shapes):
    assert check(f"{shapes}:{name}")[1]["good"] == 3


def test_native_without_a_model_and_unknown_formats_say_what_to_give(shapes):
    result = data("check", f"{shapes}:native")
    assert result.exit_code == 2 and "--model" in result.output and "gemma4" in result.output
    result = data("check", f"{shapes}:yx")
    assert result.exit_code == 2
    assert ", ".join(SUBSETS) in " ".join(result.output.split())
