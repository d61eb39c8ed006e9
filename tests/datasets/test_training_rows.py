"""The Dataset that ms-swift gets: gold, pictures and columns as they were, bad rows listed."""

import json
import os
import pickle
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import concatenate_datasets
from support.stored_sets import (
    FORMS,
    GOLD,
    PROBLEM,
    SIZE,
    columns,
    parquet_folder,
    picture,
    shown,
    train_on,
    write_table,
)

from swift_vlrft.datasets import DataError, read_rows
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.schemas import SCHEMAS, RecordSchema
from swift_vlrft.families.image_resize import ImageResize

VIEW = ImageResize("qwen2_5_vl", 3136, 12_845_056)


def lie_where_they_lay(dataset):
    """Whether the table of rows holds no picture, and says where each one is."""
    images = [image for (image,) in dataset.data.table["images"].to_pylist()]
    return all(image["bytes"] is None and image["path"] for image in images)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_written_and_no_picture_is_copied(form, tmp_path):
    path = form(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    dataset, _ = train_on(path)
    assert lie_where_they_lay(dataset)
    assert [shown(row).size for row in dataset] == [SIZE] * 3
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_pictures_are_found_behind_groups_of_rows_and_after_a_shuffle(tmp_path):
    rows = [
        {"image": {"bytes": picture(size=(9 + n, 9)), "path": None}, "problem": PROBLEM, "n": n}
        | {"solution": "<answer>No Objects</answer>"}
        for n in range(70)
    ]
    write_table(tmp_path / "train.parquet", rows, row_group_size=30)
    dataset = concatenate_datasets([train_on(tmp_path)[0]] * 2).shuffle(seed=1)
    dataset = pickle.loads(pickle.dumps(dataset.add_column("more", [0] * 140)))
    assert all(shown(row).size == (9 + row["n"], 9) for row in dataset)


@pytest.mark.parametrize("spoil", [lambda file: os.truncate(file, 5000), os.unlink])
def test_a_parquet_shard_that_goes_while_others_are_read(spoil, tmp_path):
    image = {"bytes": picture() + random.Random(0).randbytes(9000), "path": None}
    for number in (0, 1):
        file = tmp_path / f"train-{number:05d}-of-00002.parquet"
        write_table(file, columns(4) | {"image": [image] * 4}, row_group_size=1)
    with pytest.raises(DataError, match="train-00001-of-00002.parquet: cannot be read"):
        for n, _ in enumerate(read_rows(tmp_path)):
            if n == 1:
                spoil(file)


def test_bad_rows_are_counted_and_listed_and_strict_stops(tmp_path):
    changed = columns(5) | {"aliases": [["a"], None, ["c"], None, ["e"]]}
    changed["problem"][1] = " "
    changed["image"][3] = {"bytes": b"no picture", "path": "3.png"}
    write_table(tmp_path / "train.parquet", changed)
    dataset, report = train_on(tmp_path, tmp_path / "cache")
    assert len(dataset) == 3 and report.good == 3 and report.rows == 5
    assert dataset["aliases"] == [["a"], ["c"], ["e"]]
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
    assert lie_where_they_lay(dataset)


def test_pictures_in_lists_stay_in_the_table(tmp_path):
    """verl's and EasyR1's rows."""
    images = [[{"bytes": picture(size=(40 + n, 20)), "path": None}] for n in range(3)]
    images[1] *= 2
    rows = [{"images": each, "problem": "How many?", "answer": "4"} for each in images]
    write_table(tmp_path / "train.parquet", rows)
    dataset, report = train_on(tmp_path, tmp_path / "cache", rewards=("vlrft_counting",))
    assert "the row has 2 images" in report.listed() and report.good == 2
    assert [shown(row).size for row in dataset] == [(40, 20), (42, 20)]
    assert lie_where_they_lay(dataset)


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
