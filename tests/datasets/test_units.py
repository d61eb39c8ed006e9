"""Which order and unit the numbers of boxes can have, and what is refused for it."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.stored_sets import picture, train_on
from support.written_sets import data, rows_in

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.units import (
    READINGS,
    UNITS,
    Reading,
    are_shares,
    clipped,
    corners,
    fitting,
)
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.run import resolve

FAR = (640, 480)


@st.composite
def drawn_boxes(draw):
    """Corners in pixels, with area, inside pictures of several sizes: what a person drew."""
    found = []
    for _ in range(draw(st.integers(1, 12))):
        width, height = draw(st.integers(8, 4000)), draw(st.integers(8, 4000))
        x1, y1 = draw(st.integers(0, width - 4)), draw(st.integers(0, height - 4))
        x2, y2 = draw(st.integers(x1 + 3, width)), draw(st.integers(y1 + 3, height))
        found.append(((x1, y1, x2, y2), (width, height)))
    return found


def stored(box, reading, size):
    """The numbers that a tool would write for corners in pixels."""
    x1, y1, x2, y2 = box
    numbers = {
        "xyxy": (x1, y1, x2, y2),
        "xywh": (x1, y1, x2 - x1, y2 - y1),
        "cxcywh": ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
    }[reading.boxes]
    edge = UNITS[reading.unit]
    return [n / size[i % 2] * edge if edge else n for i, n in enumerate(numbers)]


@settings(deadline=None)
@given(drawn_boxes(), st.sampled_from(READINGS))
def test_the_reading_that_boxes_were_written_in_fits_and_gives_them_back(boxes, reading):
    written = [(stored(box, reading, size), size) for box, size in boxes]
    # Specks in large pictures have percents below 1, and look like shares.
    assume(reading.unit == "unit" or not are_shares([numbers for numbers, _ in written]))
    for (numbers, size), (box, _) in zip(written, boxes, strict=True):
        assert corners(numbers, reading, size) == pytest.approx(box, abs=1e-6)
    assert reading in fitting(written)
    assert fitting(written) == fitting(written[::-1])


@pytest.mark.parametrize(
    ("boxes", "fits"),
    [
        ([[400, 200, 620, 460], [300, 400, 630, 470]], "xyxy pixels, xyxy norm1000"),
        ([[620, 470, 19, 9]], "xywh pixels, cxcywh pixels, xywh norm1000, cxcywh norm1000"),
        ([[90, 0, 92, 60]], "xywh pixels, xyxy pixels, xyxy percent, xywh norm1000, xyxy norm1000"),
        ([[0.3, 0.5, 0.9, 0.8]], "xyxy unit"),
        ([[0.5, 0.5, 0.4, 0.6]], "cxcywh unit"),
        ([[0.25, 0.25, 0.5, 0.5]], "xywh unit, xyxy unit, cxcywh unit"),
        ([[900, 900, 1000, 1000]], "xyxy norm1000"),
        ([[900, 900, 2000, 1000]], ""),
        ([], ""),
    ],
)
def test_what_fits(boxes, fits):
    found = fitting([(box, FAR) for box in boxes])
    assert ", ".join(f"{one.boxes} {one.unit}" for one in found) == fits


def test_a_slip_does_not_hide_the_reading():
    boxes = [([300 + i, 300 + i, 500 + i, 400 + i], FAR) for i in range(40)]
    assert Reading("xyxy") in fitting([*boxes, ([300, 300, 900, 900], FAR)])
    assert Reading("xyxy") not in fitting([*boxes, *[([300, 300, 900, 900], FAR)] * 4])


def test_only_the_part_inside_the_picture_is_kept():
    assert clipped((-1.5, 10, 641, 480), FAR) == (0, 10, 640, 480)
    assert clipped((640, 10, 642, 20), FAR) is None


# ---- what a person sees of it ------------------------------------------------------------------

SAID = [
    # boxes on pictures of 640 x 480; words of the refusal
    ([[400, 200, 600, 440], [100, 300, 400, 400]], ["2 of 2", "--boxes xyxy)", "1.png"]),
    ([[0.1, 0.1, 0.5, 0.5], [0.5, 0.5, 0.9, 0.9]], ["shares", "--boxes xyxy --unit unit"]),
    ([[0.5, 0.5, 0.2, 0.3]], ["shares", "--boxes cxcywh --unit unit"]),
    ([[0.1, 0.2, 0.3, 0.4]] * 20 + [[10, 20, 30, 40]], ["shares", "--boxes xywh --unit unit"]),
    ([[60, 20, 30, 40]] * 30, ["percent", "--boxes xywh --unit percent"]),
]


def instances(folder, boxes):
    """A COCO file with a box on each of its pictures."""
    numbers = range(1, len(boxes) + 1)
    for i in numbers:
        (folder / f"{i}.png").write_bytes(picture(size=FAR))
    size = {"width": FAR[0], "height": FAR[1]}
    content = {
        "images": [{"id": i, "file_name": f"{i}.png"} | size for i in numbers],
        "categories": [{"id": 7, "name": "dog"}],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 7, "bbox": boxes[i - 1]} for i in numbers
        ],
    }
    file = folder / "instances.json"
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize(("boxes", "words"), SAID)
def test_boxes_that_cannot_be_meant_are_refused_in_one_line(boxes, words, tmp_path):
    file = instances(tmp_path, boxes)
    for command in (["coco", file, tmp_path, tmp_path / "out"], ["check", file]):
        done = data(*command)
        assert done.exit_code == 2 and not (tmp_path / "out").exists()
        (line,) = done.stderr.splitlines()
        assert all(word in line for word in [str(file), *words]), line


@pytest.mark.parametrize(
    "box", [[600, 10, 100, 50], [-20, 10, 50, 50], [60, 60, -50, 50], [600, 10, 42.5, 50]]
)
def test_a_box_beyond_its_picture_makes_a_bad_row(box, tmp_path):
    file = instances(tmp_path, [[10, 10, 50, 50], box, *[[10, 10, 400, 40]] * 18])
    done = data("check", file)
    assert done.exit_code == 1 and "19 of 20 rows" in done.output, done.output
    said = " ".join(done.output.split())
    assert f"{file}, image 2" in said and f"annotations[1], id 2, {box} in image 2" in said
    done = data("coco", file, tmp_path, tmp_path / "out")
    assert done.exit_code == 2 and f"id 2, {box}" in done.stderr
    assert data("coco", file, tmp_path, tmp_path / "out", "--keep-going").exit_code == 0
    assert len(rows_in(tmp_path / "out")) == 19


def test_two_pixels_beyond_are_rounding(tmp_path):
    file = instances(tmp_path, [[600, 10, 42, 471.9]])
    assert data("coco", file, tmp_path, tmp_path / "out").exit_code == 0
    (row,) = rows_in(tmp_path / "out")
    assert "[938, 21, 1000, 1000]" in row["solution"]


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_every_reading_that_is_stated_gives_the_same_set(reading, tmp_path):
    boxes = [(64, 48, 320, 240), (200, 100, 640, 480), (0, 0, 600, 300)]
    file = instances(tmp_path, [stored(box, reading, FAR) for box in boxes])
    flags = ["--boxes", reading.boxes, "--unit", reading.unit]
    done = data("coco", file, tmp_path, tmp_path / "out", *flags)
    assert done.exit_code == 0, done.output
    golds = sorted(row["solution"].split("]")[0] for row in rows_in(tmp_path / "out"))
    assert [gold.split(": [")[1] for gold in golds] == [
        "0, 0, 938, 625",
        "100, 100, 500, 500",
        "313, 208, 1000, 1000",
    ]


# ---- in Parquet, and in other columns ----------------------------------------------------------


def parquet(folder, boxes, sized=True):
    """A picture of 640 x 480 for each box, as detection-datasets/coco has them."""
    folder.mkdir(exist_ok=True)
    size = {"width": FAR[0], "height": FAR[1]} if sized else {}
    rows = [
        {"image": {"bytes": picture(size=FAR), "path": "1.png"}}
        | size
        | {"objects": {"bbox": [box], "category": ["dog"]}}
        for box in boxes
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")
    return folder


FIT_BOTH = [[10, 20, 300, 200], [30, 30, 200, 90]]
CORNERS = [[400, 200, 600, 440], [100, 300, 400, 400]]


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize(
    ("boxes", "flags", "words"),
    [
        ([[0.5, 0.5, 0.2, 0.3]], [], ["shares, not", "(--boxes cxcywh --unit unit)"]),
        ([[60, 20, 90, 40]] * 30, [], ["percent", "(--boxes xyxy --unit percent)"]),
        ([[700, 700, 950, 900]] * 3, [], ["3 of 3 boxes", "(--boxes xyxy --unit norm1000)"]),
        (FIT_BOTH, [], ["[10, 20, 300, 200]", "2 of 2", "(--boxes xyxy) and", "(--boxes xywh)"]),
        (
            CORNERS,
            ["--boxes", "xywh"],
            ["2 of 2 boxes", "width, height in pixels", "(--boxes xyxy)"],
        ),
        (CORNERS, ["--boxes", "xyxy", "--unit", "unit"], ["2 of 2 boxes", "(--boxes xyxy)"]),
        (CORNERS, ["--unit", "unit"], ["--unit unit needs --boxes"]),
    ],
)
def test_parquet_that_cannot_be_meant_is_refused_in_one_line(boxes, flags, words, sized, tmp_path):
    path = parquet(tmp_path / "set", boxes, sized)
    commands = [["convert", path, tmp_path / "out", "--keep-going", *flags]]
    for command in commands if flags else [*commands, ["check", path]]:
        done = data(*command)
        assert done.exit_code == 2 and not (tmp_path / "out").exists()
        (line,) = done.stderr.splitlines()
        assert all(word in line for word in words), line
    if not flags:
        with pytest.raises(DataError, match="vlrft data convert"):
            train_on(path, tmp_path / "cache")


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_convert_reads_every_set_as_it_is_told(reading, tmp_path):
    boxes = [(64, 48, 320, 240), (200, 100, 640, 480), (0, 0, 600, 300)]
    written = [stored(box, reading, FAR) for box in boxes]
    (folder := tmp_path / "in").mkdir()
    lisa = [{"image_path": "1.png", "instruction": ["It."], "boxes": [box]} for box in written]
    (folder / "lisa.jsonl").write_text("\n".join(map(json.dumps, lisa)))
    sources = [instances(folder, written), parquet(folder / "objects", written)]
    sources.append(folder / "lisa.jsonl")
    for number, source in enumerate(sources):
        out = tmp_path / str(number)
        flags = ["--boxes", reading.boxes, "--unit", reading.unit]
        done = data("convert", source, out, *flags, "--root", folder)
        assert done.exit_code == 0, done.output
        found = [re.findall(r"\d+", row["solution"])[:4] for row in rows_in(out)]
        assert sorted(found) == [
            ["0", "0", "938", "625"],
            ["100", "100", "500", "500"],
            ["313", "208", "1000", "1000"],
        ]


def solutions(folder, box, form):
    """One picture of 640 x 480; its box stands in a text, whose row states no box format."""
    (folder / "1.png").write_bytes(picture(size=FAR))
    rec = [{"from": "human", "value": "<image>Where is it?"}, {"from": "gpt", "value": str(box)}]
    lisa = [
        {"from": "user", "value": "<img>1.png</img> Where is it?"},
        {"from": "assistant", "value": str(box)},
    ]
    row = {
        "virft": {"image": "1.png", "problem": "Where is it?", "solution": str(box)},
        "rec": {"image": "1.png", "conversations": rec},
        "lisa": {"conversations": lisa},
        "verl": {"images": ["1.png"], "problem": "Where is it?", "answer": str(box)},
    }[form]
    (folder / "rows.jsonl").write_text(json.dumps(row))
    return folder / "rows.jsonl"


@pytest.mark.parametrize("form", ["virft", "rec", "lisa", "verl"])
def test_a_unit_is_the_box_format_of_solutions_that_state_none(form, tmp_path):
    for unit in ("pixels", "unit", "norm1000"):
        numbers = stored((64, 48, 320, 240), Reading("xyxy", unit), FAR)
        box = [n if n < 1 else int(n) for n in numbers]
        path = solutions(tmp_path, box, form)
        done = data("convert", f"{path}:norm1000", tmp_path / unit, "--unit", unit)
        assert done.exit_code == 0, done.output
        (row,) = rows_in(tmp_path / unit)
        assert re.findall(r"\d+", row["solution"]) == ["100", "100", "500", "500"]
    for flags in (["--unit", "percent"], ["--boxes", "xywh"], ["--boxes", "xyxy"]):
        done = data("convert", path, tmp_path / "no", *flags)
        (line,) = done.stderr.splitlines()
        assert done.exit_code == 2 and "in pixels, unit or norm1000" in line


def test_a_stated_reading_takes_a_slip_for_a_bad_image(tmp_path):
    file = instances(tmp_path, [[600, 400, 100, 50], *[[10, 10, 50 + i, 60] for i in range(7)]])
    done = data("coco", file, tmp_path, tmp_path / "out")
    assert done.exit_code == 2 and "if these are slips, --boxes xywh" in done.stderr
    flags = ("--boxes", "xywh", "--keep-going")
    assert data("coco", file, tmp_path, tmp_path / "out", *flags).exit_code == 0
    assert len(rows_in(tmp_path / "out")) == 7


def test_a_published_form_is_asked_as_a_set(tmp_path):
    (tmp_path / "1.png").write_bytes(picture(size=FAR))
    thousandths = [[100 + 10 * i, 500, 900, 990 - i] for i in range(12)]
    rows = [{"image_path": "1.png", "instruction": ["It."], "boxes": [b]} for b in thousandths]
    (tmp_path / "lisa.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = data("check", tmp_path / "lisa.jsonl")
    (line,) = done.stderr.splitlines()
    assert done.exit_code == 2 and "--boxes xyxy --unit norm1000" in line


def test_the_name_of_a_group_is_no_category(tmp_path):
    file = instances(tmp_path, [[10, 10, 50, 60]] * 2)
    content = json.loads(file.read_text())
    content["categories"] = [
        {"id": 0, "name": "pets", "supercategory": "none"},
        {"id": 7, "name": "dog", "supercategory": "pets"},
        {"id": 8, "name": "cat", "supercategory": "pets"},
    ]
    file.write_text(json.dumps(content))
    done = data("coco", file, tmp_path, tmp_path / "out", "--per-category", "--negatives", "1")
    assert done.exit_code == 0 and "only a group's name: pets" in " ".join(done.output.split())
    assert {row["category"] for row in rows_in(tmp_path / "out")} == {"dog", "cat"}


def test_vlrft_check_says_of_a_set_what_training_says(tmp_path, monkeypatch):
    from swift_vlrft.swift_plugin.registration import register

    script = 'swift rlhf --rlhf_type grpo --model m --external_plugins "$(vlrft plugin)" '
    script += "--reward_funcs vlrft_detection_iou --dataset {}"
    (corners := tmp_path / "corners").mkdir()
    (yolo := tmp_path / "yolo" / "train" / "labels").mkdir(parents=True)
    (yolo / "1.txt").write_text("0 .5 .5 .2 .3")
    (several := tmp_path / "several").mkdir()
    for name in ("a", "b"):
        (several / f"{name}.jsonl").write_text('{"image": "1.png"}')
    for path, words in (
        (instances(corners, [[400, 200, 600, 440]] * 10), "--boxes xyxy"),
        (tmp_path / "yolo", "holds no known data set"),
        (several, "holds no known data set"),
    ):
        (recipe,) = read_text(script.format(path), tmp_path / "run.sh", {})
        said = [found.text for found in check_recipe(resolve(recipe)) if found.rule == "dataset"]
        assert len(said) == 1 and words in said[0], said
        monkeypatch.setattr("sys.argv", ["swift", "--dataset", str(path), "--model", "m"])
        with pytest.raises(DataError, match=re.escape(words)):
            register()


def test_a_set_that_states_sizes_is_asked_to_its_last_box(tmp_path):
    fit_both = [[10, 20, 300, 200]] * 1000
    path = parquet(tmp_path / "set", [*fit_both, *[[400, 200, 600, 440]] * 60])
    done = data("convert", path, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "[625, 417, 938, 917]" in rows_in(tmp_path / "out")[-1]["solution"]
