"""The Dataset that ms-swift gets: gold, pictures and columns as they were, bad rows listed."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.stored_sets import (
    GOLD,
    PROBLEM,
    SIZE,
    columns,
    parquet_folder,
    picture,
    saved_dataset,
    shown,
    train_on,
    write_table,
)

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.schemas import SCHEMAS, RecordSchema
from swift_vlrft.families.image_resize import ImageResize

VIEW = ImageResize("qwen2_5_vl", 3136, 12_845_056)


def lie_in_a_mapped_file(dataset):
    """Whether images are read from an Arrow file where they lie."""
    mapped = [m for m in Path("/proc/self/maps").read_text().splitlines() if ".arrow" in m]
    ranges = [[int(n, 16) for n in m.split()[0].split("-")] for m in mapped]
    chunks = dataset.data.table["images"].chunks
    addresses = [chunk.values.field("bytes").buffers()[2].address for chunk in chunks]
    return all(any(low <= address < high for low, high in ranges) for address in addresses)


def test_pictures_that_save_to_disk_wrote_stay_where_they_lie(tmp_path):
    path = saved_dataset(tmp_path)
    before = sorted(path.iterdir())
    dataset, _ = train_on(path, tmp_path / "cache")
    assert lie_in_a_mapped_file(dataset) and sorted(path.iterdir()) == before
    assert not list((tmp_path / "cache").glob("**/*.arrow"))


def test_pictures_of_parquet_lie_in_the_cache_once(tmp_path):
    parquet_folder(tmp_path)
    dataset, _ = train_on(tmp_path, tmp_path / "cache")
    assert lie_in_a_mapped_file(dataset)
    files = sorted((tmp_path / "cache").glob("*.arrow"))
    stamps = [file.stat().st_mtime_ns for file in files]
    train_on(tmp_path, tmp_path / "cache")
    assert [f.stat().st_mtime_ns for f in sorted((tmp_path / "cache").glob("*.arrow"))] == stamps


def test_bad_rows_are_counted_and_listed_and_strict_stops(tmp_path):
    changed = columns(5) | {"aliases": [["a"], None, ["c"], None, ["e"]]}
    changed["problem"][1] = " "
    changed["image"][3] = {"bytes": b"no picture", "path": "3.png"}
    write_table(tmp_path / "train.parquet", changed)
    dataset, report = train_on(tmp_path, tmp_path / "cache")
    assert len(dataset) == 3 and report.good == 3 and report.rows == 5
    assert dataset["aliases"] == [["a"], ["c"], ["e"]]
    assert dataset._indices is None  # else ms-swift would copy every picture
    assert re.findall("train.parquet, row (.): the (problem|image)", report.listed()) == [
        ("1", "problem"), ("3", "image"),
    ]  # fmt: skip
    with pytest.raises(DataError, match="2 of 5 rows"):
        train_on(tmp_path, tmp_path / "cache", strict=True)
    changed["solution"][1] = "a dog"  # gold that cannot be read always stops
    changed["problem"][1] = PROBLEM
    write_table(tmp_path / "train.parquet", changed)
    with pytest.raises(DataError, match="train.parquet, row 1: .*'a dog'"):
        train_on(tmp_path, tmp_path / "cache", rewards=("vlrft_detection_iou",))


def test_shards_may_differ_in_order_and_in_columns_of_nulls(tmp_path):
    first = columns() | {"source": pa.nulls(3), "number": [1, 2, 3]}
    first["image"] = [{"bytes": image["bytes"], "path": None} for image in first["image"]]
    second = columns() | {"source": ["a", "b", "c"], "number": [4, 5, 6]}
    second = {name: second[name] for name in reversed(second)}
    for number, shard in enumerate((first, second)):
        write_table(tmp_path / f"train-{number:05d}-of-00002.parquet", shard)
    dataset, _ = train_on(tmp_path, tmp_path / "cache")
    assert dataset["source"] == [None, None, None, "a", "b", "c"]
    assert dataset["number"] == [1, 2, 3, 4, 5, 6]
    assert [shown(row).size for row in dataset] == [SIZE] * 6


def test_the_subset_pixels_rewrites_gold_and_prompt_for_the_resized_image(tmp_path):
    from swift_vlrft.geometry.box_format import convert_box

    parquet_folder(tmp_path)
    dataset, _ = train_on(tmp_path, tmp_path / "cache", box_format="pixels", resize=VIEW)
    seen = VIEW.size(*SIZE)
    box = list(convert_box((254, 303, 291, 365), "norm1000", "pixels", size=seen))
    assert dataset[0]["solution"] == GOLD.replace("[254, 303, 291, 365]", str(box))
    asked = dataset[0]["messages"][0]["content"]
    assert f"x from 0 to {seen[0]} and y from 0 to {seen[1]}" in asked
    assert dataset["frame"] == ["pixels"] * 3
    assert (dataset[0]["width"], dataset[0]["height"]) == seen
    assert dataset[2]["solution"] == "<answer>No Objects</answer>"


@pytest.mark.parametrize("sized", [{}, {"width": 40, "height": 20}])
def test_rows_of_one_picture_point_at_it_in_the_table(sized, tmp_path):
    """COCO in Parquet: a row for each category, and no picture is written as a file."""
    boxes = [[4, 5, 20, 15], [30, 9, 40, 20]]
    names = [["dog", "cat"], ["cat", "cat"], ["dog", "bus"], ["bus", "bus"]]
    colours = [(200, 9 * n, 0) for n in range(len(names))]
    content = [
        {"image": {"bytes": picture(colour=colour), "path": "9.png"}, **sized}
        | {"objects": {"bbox": boxes, "category": name}}
        for name, colour in zip(names, colours, strict=True)
    ]
    content[3]["image"]["bytes"] = b"no picture"
    for number, part in enumerate((content[:1], content[1:])):
        write_table(tmp_path / f"train-0000{number}-of-00002.parquet", part)
    dataset, report = train_on(tmp_path, tmp_path / "cache")
    assert [bad.place.row for bad in report.problems] == [2] and report.good == 5
    assert dataset["category"] == ["dog", "cat", "cat", "dog", "bus"]
    assert [shown(row).getpixel((0, 0)) for row in dataset] == [colours[n] for n in (0, 0, 1, 2, 2)]
    assert lie_in_a_mapped_file(dataset)
    written = {f.suffix for f in (tmp_path / "cache").rglob("*") if f.is_file()}
    assert written <= {".arrow", ".json", ".lock"}


def test_pictures_in_lists_stay_in_the_table(tmp_path):
    """verl's and EasyR1's rows."""
    images = [[{"bytes": picture(size=(40 + n, 20)), "path": None}] for n in range(3)]
    images[1] *= 2
    rows = [{"images": each, "problem": "How many?", "answer": "4"} for each in images]
    write_table(tmp_path / "train.parquet", rows)
    dataset, report = train_on(tmp_path, tmp_path / "cache", rewards=("vlrft_counting",))
    assert "the row has 2 images" in report.listed() and report.good == 2
    assert [shown(row).size for row in dataset] == [(40, 20), (42, 20)]
    assert lie_in_a_mapped_file(dataset)


def test_a_schema_may_give_a_row_another_image_than_the_column(tmp_path):
    def rows(record, context):
        for image in (record["image"], {"bytes": picture(size=(9, 9)), "path": None}):
            yield {"image": image, "problem": "What?", "solution": "rose"}

    schema = RecordSchema("pairs", lambda columns: "pairs" in columns, rows, single=False)
    write_table(tmp_path / "train.parquet", [{"pairs": 1, "image": columns(1)["image"][0]}] * 2)
    SCHEMAS.insert(0, schema)
    try:
        dataset, _ = train_on(tmp_path, tmp_path / "cache")
    finally:
        SCHEMAS.remove(schema)
    assert [shown(row).size for row in dataset] == [SIZE, (9, 9)] * 2


def test_categories_that_a_crowd_stands_for_are_reported(tmp_path):
    boxes = [[4, 5, 20, 15], [9, 9, 40, 20], [1, 1, 1, 9]]
    objects = {"bbox": boxes, "category": ["dog", "cat", "bus"], "iscrowd": [0, 1, 0]}
    image = {"bytes": picture(), "path": "9.png"}
    write_table(tmp_path / "train.parquet", [{"image": image, "objects": objects}])
    dataset, report = train_on(tmp_path, tmp_path / "cache")
    assert dataset["category"] == ["dog"] and not report.problems
    (note,) = report.notes
    assert re.findall(r"2 times|train.parquet, row 0: \w+", note) == [
        "2 times", "train.parquet, row 0: cat", "train.parquet, row 0: bus",
    ]  # fmt: skip


def test_whole_numbers_of_over_64_bits_become_text(tmp_path):
    rows = [
        {"image": "1.png", "problem": "?", "solution": "rose", "id": n} for n in (2**53, 10**30)
    ]
    (tmp_path / "1.png").write_bytes(picture())
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    dataset, report = train_on(tmp_path / "rows.jsonl", tmp_path / "cache")
    assert report.good == 2 and dataset["id"] == [str(2**53), str(10**30)]


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.table(columns())
    twice = table.append_column("solution", table.column("problem"))
    pq.write_table(twice, tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r"train.parquet: cannot be read .*solution"):
        train_on(tmp_path, tmp_path / "cache")
    renamed = table.append_column("text", table.column("problem"))
    pq.write_table(renamed, tmp_path / "train.parquet")
    with pytest.raises(DataError, match="problem: problem, text"):
        open_set(tmp_path, rename={"text": "problem"})
