"""The box formats as subsets, ``PATH:unit`` or ``PATH:native``, in every command on data."""

import re

import pytest
from PIL import Image
from support.stored_sets import GOLD
from support.written_sets import check, coco_with_a_crowd, data, rows_in, write_rows

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.box_format import in_box_format, native_format
from swift_vlrft.datasets.build import PROMPT
from swift_vlrft.families import FAMILIES
from swift_vlrft.geometry.box_format import SUBSETS
from swift_vlrft.parsing.boxes import read_boxes

SIZE = (640, 480)
DOG = PROMPT.replace("{category}", "dog")
ROW = {"image": "1.png", "problem": DOG, "solution": GOLD, "task": "detection"}


def written(folder, *rows):
    Image.new("RGB", SIZE).save(folder / "1.png")
    return write_rows(folder / "set.jsonl", *rows)


@pytest.fixture
def shapes(tmp_path):
    solutions = [GOLD, "<answer>No Objects</answer>", "[100, 200, 101, 999]"]
    return written(tmp_path, *(ROW | {"solution": solution} for solution in solutions))


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
    problem, solution = in_box_format(
        DOG, GOLD, "norm1000", box_format, size=SIZE, to_size=SIZE, key=key
    )
    (box,) = read_boxes(solution.split("answer>")[1][:-2]).boxes
    own = known.box_answer if box_format != "pixels" else "[163, 145, 186, 175]"
    scale = 1000 if box_format == "unit" else 1
    assert [value * scale for value in box] == pytest.approx(read_boxes(own).boxes[0])
    mark = f"'{key or 'Position'}': ["
    assert mark in solution and mark in problem and "'Confidence': 1}" in solution


@pytest.mark.parametrize(
    ("model", "box_format", "key"),
    [
        (["--model-type", "qwen2_5_vl"], "pixels", "bbox_2d"),
        (["--model-type", "gemma4"], "yx1000", "box_2d"),
        # its type in ms-swift is GLM-4v's; a name or folder tells them apart
        (["--model", "zai-org/cogagent-9b-20241220"], "norm1000", "Position"),
        (["--model-type", "chatglm4v"], None, "was not trained to write boxes"),
        (["--model-type", "qwen2"], None, "none is known for"),
    ],
)
def test_native_is_that_of_the_commands_model(model, box_format, key, tmp_path):
    result = data("convert", f"{written(tmp_path, ROW)}:native", tmp_path / "out", *model)
    if box_format is None:
        assert result.exit_code == 2 and key in result.output
        return
    assert result.exit_code == 0, result.output
    (stored,) = rows_in(tmp_path / "out")
    assert stored["frame"] == box_format and f"'{key}': [" in stored["solution"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pixels", "unit", "yx1000"])
def test_every_data_command_takes_every_format(name, shapes, tmp_path):
    assert check(f"{shapes}:{name}")[1]["good"] == 3
    result = data("convert", f"{shapes}:{name}", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert {row["frame"] for row in rows_in(tmp_path / "out")} == {name}
    assert check(tmp_path / "out")[1]["good"] == 3
    # Back in thousandths, and as shown.
    assert data("convert", f"{tmp_path}/out:norm1000", tmp_path / "back").exit_code == 0
    back = rows_in(tmp_path / "back")
    assert [row["problem"] for row in back] == [DOG] * 3
    assert read_boxes(back[0]["solution"][8:-9]).boxes[0] == pytest.approx(
        (254, 303, 291, 365), abs=1 if name == "pixels" else 0
    )
    assert data("show", tmp_path / "out", "--out", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    place = re.search(r"left:([\d.]+)%;top:([\d.]+)%;width:([\d.]+)%;height:([\d.]+)%", page)
    assert [float(v) for v in place.groups()] == pytest.approx([25.4, 30.3, 3.7, 6.2], abs=0.2)


@pytest.mark.parametrize(
    ("name", "gold"),
    [
        ("unit", "'Position': [0.100, 0.250, 0.500, 0.750]"),
        ("yx1000", "'box_2d': [250, 100, 750, 500]"),
        ("pixels", "'Position': [4, 5, 20, 15]"),
        ("native", "'bbox_2d': [100, 250, 500, 750]"),
    ],
)
def test_coco_is_built_in_any_format(name, gold, tmp_path):
    file, options = coco_with_a_crowd(tmp_path), ["--categories", "dog", "--model-type", "qwen3_vl"]
    result = data("coco", f"{file}:{name}", tmp_path, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    (row,) = rows_in(tmp_path / "out")
    assert row["solution"] == f"<answer>[{{{gold}, 'Confidence': 1, 'label': 'dog'}}]</answer>"
    assert row["frame"] == ("norm1000" if name == "native" else name)


@pytest.mark.parametrize("command", ["check", "convert"])
def test_native_without_a_model_and_unknown_formats_say_what_to_give(command, shapes, tmp_path):
    further = [tmp_path / "out"] if command == "convert" else []
    result = data(command, f"{shapes}:native", *further)
    assert result.exit_code == 2 and "--model" in result.output and "gemma4" in result.output
    result = data(command, f"{shapes}:yx", *further)
    assert result.exit_code == 2
    assert ", ".join(SUBSETS) in " ".join(result.output.split())
