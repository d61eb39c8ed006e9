"""What a person sees where boxes cannot be meant as they are read, and how they state it."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.stored_sets import picture, train_on
from support.written_boxes import written
from support.written_sets import data, rows_in

from swift_vlrft.datasets import DataError, read_rows, to_dataset
from swift_vlrft.geometry.readings import READINGS, Reading
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.run import resolve

FAR = (640, 480)


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


def lisa(folder, boxes):
    (folder / "1.png").write_bytes(picture(size=FAR))
    rows = [{"image_path": "1.png", "instruction": ["It."], "boxes": [box]} for box in boxes]
    (folder / "lisa.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "lisa.jsonl"


FIT_BOTH = [[10, 20, 300, 200], [30, 30, 200, 90]]
CORNERS = [[400, 200, 600, 440], [100, 300, 400, 400]]
SAID = [
    (instances, CORNERS, [], ["2 of 2 boxes", "(--boxes xyxy)", "1.png"]),
    (instances, [[0.5, 0.5, 0.2, 0.3]], [], ["(--boxes cxcywh --unit unit)"]),
    (instances, [[60, 20, 30, 40]] * 30, [], ["30 of 30", "(--boxes xywh --unit percent)"]),
    (parquet, [[0.5, 0.5, 0.2, 0.3]], [], ["(--boxes cxcywh --unit unit)"]),
    (parquet, [[700, 700, 950, 900]] * 3, [], ["3 of 3", "(--boxes xyxy --unit norm1000)"]),
    (parquet, FIT_BOTH, [], ["[10, 20, 300, 200]", "2 of 2", "(--boxes xyxy)", "(--boxes xywh)"]),
    (parquet, CORNERS, ["--boxes", "xywh"], ["2 of 2 boxes", "(--boxes xyxy)"]),
    (parquet, CORNERS, ["--boxes", "xyxy", "--unit", "unit"], ["2 of 2 boxes", "(--boxes xyxy)"]),
    (parquet, CORNERS, ["--unit", "unit"], ["--unit unit needs --boxes"]),
    (lisa, [[100 + i, 500, 900, 990 - i] for i in range(12)], [], ["--boxes xyxy --unit norm1000"]),
]


@pytest.mark.parametrize(("form", "boxes", "flags", "words"), SAID)
def test_boxes_that_cannot_be_meant_are_refused_in_one_line(form, boxes, flags, words, tmp_path):
    (folder := tmp_path / "set").mkdir()
    path, out = form(folder, boxes), tmp_path / "out"
    commands = [["convert", path, out, "--keep-going", *flags]]
    commands += [["coco", path, folder, out]] if form is instances else []
    for command in commands if flags else [*commands, ["check", path]]:
        done = data(*command)
        assert done.exit_code == 2 and not out.exists()
        (line,) = done.stderr.splitlines()
        assert all(word in line for word in [str(path) * (not flags), *words]), line
    if not flags:
        with pytest.raises(DataError, match="vlrft data convert"):
            train_on(path, tmp_path / "cache")


def test_a_parquet_set_without_sizes_is_judged_by_its_images(tmp_path):
    done = data("check", parquet(tmp_path / "set", FIT_BOTH, sized=False))
    assert done.exit_code == 2 and "an image of 640 x 480, lie inside" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("box", [[600, 10, 100, 50], [60, 60, -50, 50]])
def test_a_slip_in_a_hundred_makes_a_bad_row(box, tmp_path):
    file = instances(tmp_path, [[10, 10, 50, 50], box, *[[10, 10, 400, 40]] * 98])
    done = data("check", file)
    assert done.exit_code == 1 and "99 of 100 rows" in done.output, done.output
    said = " ".join(done.output.split())
    assert f"{file}, image 2" in said and f"annotations[1], id 2, {box} in image 2" in said
    done = data("coco", file, tmp_path, tmp_path / "out")
    assert done.exit_code == 2 and f"id 2, {box}" in done.stderr
    assert data("coco", file, tmp_path, tmp_path / "out", "--keep-going").exit_code == 0
    assert len(rows_in(tmp_path / "out")) == 99


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_every_reading_that_is_stated_gives_the_same_set(reading, tmp_path):
    boxes = [(64, 48, 320, 240), (200, 100, 640, 480), (0, 0, 600, 300)]
    stored = [written(box, reading, FAR) for box in boxes]
    (folder := tmp_path / "in").mkdir()
    flags = ["--boxes", reading.boxes, "--unit", reading.unit]
    for form in (instances, lisa, lambda _, stored: parquet(folder / "objects", stored)):
        source, out = form(folder, stored), tmp_path / str(form)
        commands = [["convert", source, "--root", folder, out]]
        commands += [["coco", source, folder, tmp_path / "coco"]] if form is instances else []
        for command in commands:
            done = data(*command, *flags)
            assert done.exit_code == 0, done.output
            found = [re.findall(r"\d+", row["solution"])[:4] for row in rows_in(command[-1])]
            assert sorted(found) == [
                ["0", "0", "938", "625"],
                ["100", "100", "500", "500"],
                ["313", "208", "1000", "1000"],
            ]


def solutions(folder, box, form):
    """One picture of 640 x 480; its box stands in a text, whose row states no box format."""
    (folder / "1.png").write_bytes(picture(size=FAR))
    row = {
        "virft": {"image": "1.png", "problem": "Where is it?", "solution": str(box)},
        "verl": {"images": ["1.png"], "problem": "Where is it?", "answer": str(box)},
    }[form]
    (folder / "rows.jsonl").write_text(json.dumps(row))
    return folder / "rows.jsonl"


@pytest.mark.parametrize("form", ["virft", "verl"])
def test_a_unit_is_the_box_format_of_solutions_that_state_none(form, tmp_path):
    for unit in ("pixels", "unit", "norm1000"):
        numbers = written((64, 48, 320, 240), Reading("xyxy", unit), FAR)
        path = solutions(tmp_path, [n if n < 1 else int(n) for n in numbers], form)
        done = data("convert", path, tmp_path / unit, "--unit", unit)
        assert done.exit_code == 0, done.output
        rows, _ = train_on(tmp_path / unit, tmp_path / "cache")
        assert re.findall(r"\d+", rows[0]["solution"]) == ["100", "100", "500", "500"]
    for flags in (["--unit", "percent"], ["--boxes", "xywh"], ["--boxes", "xyxy"]):
        done = data("convert", path, tmp_path / "no", *flags)
        (line,) = done.stderr.splitlines()
        assert done.exit_code == 2 and "in pixels, unit or norm1000" in line


@pytest.mark.slow  # ms-swift is imported
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
        (several, "a.jsonl, b.jsonl. Give the file of rows"),
    ):
        (recipe,) = read_text(script.format(path), tmp_path / "run.sh", {})
        said = [found.text for found in check_recipe(resolve(recipe)) if found.rule == "dataset"]
        assert len(said) == 1 and words in said[0], said
        monkeypatch.setattr("sys.argv", ["swift", "--dataset", str(path), "--model", "m"])
        with pytest.raises(DataError, match=re.escape(words)):
            register()


@pytest.mark.slow
def test_a_set_that_states_sizes_is_asked_to_its_last_box(tmp_path):
    fit_both = [[10, 20, 300, 200]] * 1000
    path = parquet(tmp_path / "set", [*fit_both, *[[400, 200, 600, 440]] * 150])
    done = data("convert", path, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "[625, 417, 938, 917]" in rows_in(tmp_path / "out")[-1]["solution"]


def test_python_states_what_a_column_of_boxes_holds(tmp_path):
    """As the options of the command do; a row says its image's size, its boxes and labels."""
    folder = parquet(tmp_path / "set", FIT_BOTH)
    with pytest.raises(DataError, match="read_rows as boxes= and unit="):
        list(read_rows(folder))
    first, second = read_rows(folder, boxes="xywh")
    assert first.boxes == [(16, 42, 484, 458)] and first.labels == ["dog"] and first.size == FAR
    assert to_dataset(folder, boxes="xywh")["solution"][1] == second.solution
    for wrong in ({"boxes": "xywh", "unit": "inch"}, {"unit": "percent"}, {"boxes": "corners"}):
        with pytest.raises(ValueError, match="--unit inch|needs --boxes|--boxes corners"):
            list(read_rows(folder, **wrong))
    named = {"image": "set/1.png", "problem": "Name it.", "solution": "dog"}
    (tmp_path / "set" / "1.png").write_bytes(picture())
    (tmp_path / "names.jsonl").write_text(json.dumps(named | {"task": "classification"}))
    (row,) = read_rows(tmp_path / "names.jsonl")
    assert (row.boxes, row.labels) == ([], [])
    (tmp_path / "bad.jsonl").write_text(json.dumps(named | {"task": "counting"}))
    with pytest.raises(DataError, match="bad.jsonl, row 0: "):
        to_dataset(tmp_path / "bad.jsonl")
