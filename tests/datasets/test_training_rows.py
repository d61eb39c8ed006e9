"""The Dataset that ms-swift gets: gold, pictures and columns as they were, bad rows listed."""

import io
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.drawn_rows import boxed_rows
from support.stored_sets import FORMS, GOLD, PROBLEM, SIZE, columns, parquet_folder, picture

from swift_vlrft.datasets import BadRow, DataError, Row, RowLocation
from swift_vlrft.datasets.box_format import ImageResize
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import read_rows, rows_of
from swift_vlrft.datasets.storage import Stream as StreamedSet
from swift_vlrft.datasets.training import (
    LoadOptions,
    streamed_rows,
    training_set,
)
from swift_vlrft.demo.data import write_parquet

VIEW = ImageResize("qwen2_5_vl", 3136, 12_845_056)


def made(path, tmp_path, **options):
    wanted = LoadOptions(cache=tmp_path / "cache", **options)
    return training_set(open_set(path, keep_going=True), wanted)


def shown(row):
    (image,) = row["images"]
    source = image["path"] if image["bytes"] is None else io.BytesIO(image["bytes"])
    return Image.open(source)


@pytest.mark.parametrize("write", FORMS)
def test_every_form_trains_alike(write, tmp_path):
    rows, report = made(write(tmp_path), tmp_path)
    assert (report.rows, report.good, report.problems) == (3, 3, [])
    assert rows["solution"] == columns()["solution"]
    assert rows["task"] == [None] * 3 and rows["frame"] == ["norm1000"] * 3
    for row in rows:
        assert row["messages"] == [{"role": "user", "content": f"<image>{PROBLEM}"}]
        assert shown(row).size == SIZE


@pytest.mark.parametrize("write", FORMS)
def test_supervised_rows_end_with_the_solution(write, tmp_path):
    rows, _ = made(write(tmp_path), tmp_path, with_answers=True)
    user = {"role": "user", "content": f"<image>{PROBLEM}"}
    for row in rows:
        assert row["messages"] == [user, {"role": "assistant", "content": row["solution"]}]


def test_gold_image_and_prompt_are_as_they_were(tmp_path):
    rows = boxed_rows(random.Random(0), 5)
    write_parquet(rows, tmp_path / "set")
    dataset, _ = made(tmp_path / "set", tmp_path)
    streamed = streamed_rows(
        read_rows(tmp_path / "set"), LoadOptions(tmp_path / "cache"), Report_of(tmp_path)
    )
    for found in (dataset, streamed):
        for row, got in zip(rows, found, strict=True):
            assert got["messages"][0]["content"] == "<image>" + row.problem
            assert (got["solution"], got["task"]) == (row.solution, None)
            assert shown(got).tobytes() == row.image.tobytes()


def Report_of(path):
    from swift_vlrft.datasets.report import Report

    return Report(path)


def test_pictures_of_parquet_lie_in_the_cache_once(tmp_path):
    parquet_folder(tmp_path)
    dataset, _ = made(tmp_path, tmp_path)
    mapped = [m for m in Path("/proc/self/maps").read_text().splitlines() if ".arrow" in m]
    ranges = [[int(n, 16) for n in m.split()[0].split("-")] for m in mapped]
    for chunk in dataset.data.table["images"].chunks:  # read where they lie
        address = chunk.values.field("bytes").buffers()[2].address
        assert any(low <= address < high for low, high in ranges)
    files = sorted((tmp_path / "cache").glob("*.arrow"))
    stamps = [file.stat().st_mtime_ns for file in files]
    made(tmp_path, tmp_path)
    assert [f.stat().st_mtime_ns for f in sorted((tmp_path / "cache").glob("*.arrow"))] == stamps


def test_bad_rows_are_counted_and_listed_and_strict_stops(tmp_path):
    changed = columns(5) | {"aliases": [["a"], None, ["c"], None, ["e"]]}
    changed["problem"][1] = " "
    changed["image"][3] = {"bytes": b"no picture", "path": "3.png"}
    pq.write_table(pa.table(changed), tmp_path / "train.parquet")
    dataset, report = made(tmp_path, tmp_path)
    assert len(dataset) == 3 and report.good == 3 and report.rows == 5
    assert dataset["aliases"] == [["a"], ["c"], ["e"]]
    assert dataset._indices is None  # else ms-swift would copy every picture
    listed = report.listed()
    assert "train.parquet, row 1: the problem is ' ', a prompt is needed" in listed
    assert "train.parquet, row 3: the image '3.png' is not an image" in listed
    with pytest.raises(DataError, match="2 of 5 rows of .* cannot be trained on"):
        made(tmp_path, tmp_path, strict=True)


def test_a_gold_solution_that_cannot_be_read_always_stops(tmp_path):
    changed = columns(5)
    changed["solution"][1] = "a dog"
    pq.write_table(pa.table(changed), tmp_path / "train.parquet")
    with pytest.raises(DataError, match="train.parquet, row 1: the solution 'a dog' cannot be"):
        made(tmp_path, tmp_path)


def test_half_a_picture_is_found_without_decoding_it(tmp_path):
    changed = columns(5)
    noise = random.Random(0).randbytes(60 * 60 * 3)
    for i, form in enumerate(("PNG", "JPEG")):
        buffer = io.BytesIO()
        Image.frombytes("RGB", (60, 60), noise).save(buffer, form)
        changed["image"][i] = {"bytes": buffer.getvalue()[:-2000], "path": None}
        # What some cameras write behind the picture is no damage.
        changed["image"][i + 2] = {"bytes": buffer.getvalue() + bytes(9000), "path": None}
    pq.write_table(pa.table(changed), tmp_path / "train.parquet")
    dataset, report = made(tmp_path, tmp_path)
    assert len(dataset) == 3 and [one.place.row for one in report.problems] == [0, 1]
    assert all("is broken (image file is truncated" in one.problem for one in report.problems)


def test_shards_may_differ_in_order_and_in_columns_of_nulls(tmp_path):
    first = columns() | {"source": pa.nulls(3), "number": [1, 2, 3]}
    first["image"] = [{"bytes": image["bytes"], "path": None} for image in first["image"]]
    second = columns() | {"source": ["a", "b", "c"], "number": [0.5, 1.5, 2.5]}
    second = {name: second[name] for name in reversed(second)}
    for number, shard in enumerate((first, second)):
        pq.write_table(pa.table(shard), tmp_path / f"train-{number:05d}-of-00002.parquet")
    dataset, _ = made(tmp_path, tmp_path)
    assert dataset["source"] == [None, None, None, "a", "b", "c"]
    assert dataset["number"] == [1, 2, 3, 0.5, 1.5, 2.5]
    assert [shown(row).size for row in dataset] == [SIZE] * 6


def test_shards_of_types_that_do_not_go_together_are_named(tmp_path):
    for number, values in enumerate(([1, 2, 3], ["a", "b", "c"])):
        shard = pa.table(columns() | {"source": values})
        pq.write_table(shard, tmp_path / f"train-{number:05d}-of-00002.parquet")
    with pytest.raises(DataError, match="00001-of-00002.parquet: the column 'source' holds string"):
        made(tmp_path, tmp_path)


def test_a_column_of_lists_of_one_picture(tmp_path):
    changed = columns()
    changed["image"] = [[image] for image in changed["image"]]
    pq.write_table(pa.table(changed), tmp_path / "train.parquet")
    dataset, report = made(tmp_path, tmp_path)
    assert report.good == 3 and [shown(row).size for row in dataset] == [SIZE] * 3


def test_a_folder_named_after_its_split(tmp_path):
    (tmp_path / "test").mkdir()
    pq.write_table(pa.table(columns()), tmp_path / "test" / "0.parquet")
    assert len(made(tmp_path / "test", tmp_path)[0]) == 3
    with pytest.raises(DataError, match="no split 'train'"):
        open_set(tmp_path)


def test_a_damaged_shard_leaves_the_healthy_ones(tmp_path):
    parquet_folder(tmp_path)
    broken = tmp_path / "data" / "train-00000-of-00002.parquet"
    content = bytearray(broken.read_bytes())
    content[20:200] = bytes(180)
    broken.write_bytes(content)
    dataset, report = made(tmp_path, tmp_path)
    assert len(dataset) == 1 and "train-00000-of-00002.parquet" in report.listed()


def test_a_photograph_turned_by_its_tag_reaches_the_model_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    upright = Image.new("RGB", (20, 40), (0, 0, 255))
    upright.paste((255, 0, 0), (0, 0, 20, 10))
    upright.rotate(90, expand=True).save(buffer, "JPEG", exif=exif, quality=95)
    changed = columns(3)
    changed["image"][1] = {"bytes": buffer.getvalue(), "path": "turned.jpg"}
    pq.write_table(pa.table(changed), tmp_path / "train.parquet")
    dataset, _ = made(tmp_path, tmp_path)
    assert [shown(row).size for row in dataset] == [SIZE, (20, 40), SIZE]
    red, _, blue = shown(dataset[1]).convert("RGB").getpixel((10, 3))
    assert red > 200 and blue < 60
    assert dataset[0]["images"][0]["bytes"] == picture()


def test_the_subset_pixels_rewrites_gold_and_prompt_for_the_resized_image(tmp_path):
    from swift_vlrft.geometry.box_format import convert_box

    parquet_folder(tmp_path)
    dataset, _ = made(tmp_path, tmp_path, box_format="pixels", resize=VIEW)
    seen = VIEW.size(*SIZE)
    box = list(convert_box((254, 303, 291, 365), "norm1000", "pixels", size=seen))
    assert dataset[0]["solution"] == GOLD.replace("[254, 303, 291, 365]", str(box))
    assert (
        f"x from 0 to {seen[0]} and y from 0 to {seen[1]}" in dataset[0]["messages"][0]["content"]
    )
    assert dataset["frame"] == ["pixels"] * 3
    assert (dataset[0]["width"], dataset[0]["height"]) == seen
    assert dataset[2]["solution"] == "<answer>No Objects</answer>"


def test_boxes_in_pixels_become_norm1000_by_default(tmp_path):
    (tmp_path / "1.png").write_bytes(picture())
    turns = [
        {"from": "human", "value": "Where is she?"},
        {"from": "gpt", "value": "[4, 5, 20, 15]"},
    ]
    (tmp_path / "rec.jsonl").write_text(json.dumps({"image": "1.png", "conversations": turns}))
    dataset, _ = made(tmp_path / "rec.jsonl", tmp_path)
    assert dataset[0]["solution"] == "<answer>[100, 250, 500, 750]</answer>"
    assert dataset[0]["frame"] == "norm1000"
    assert "between 0 and 1000" in dataset[0]["messages"][0]["content"]
    dataset, _ = made(tmp_path / "rec.jsonl", tmp_path, box_format="pixels", resize=VIEW)
    assert dataset[0]["solution"] == "<answer>[8, 14, 42, 42]</answer>"  # seen as 84 x 56


def test_coco_in_parquet_stores_each_picture_once(tmp_path):
    objects = {"bbox": [[4, 5, 20, 15], [0, 0, 40, 20]], "category": ["dog", "cat"]}
    table = pa.table({"image": [{"bytes": picture(), "path": "9.png"}], "objects": [objects]})
    pq.write_table(table, tmp_path / "train.parquet")
    dataset, _ = made(tmp_path, tmp_path)
    assert dataset["category"] == ["dog", "cat"]
    assert len({row["images"][0]["path"] for row in dataset}) == 1
    assert shown(dataset[0]).size == SIZE


class Stream:
    """A hub's set that is streamed; ``read`` counts the records that were asked for."""

    def __init__(self, records):
        self.records, self.read = records, 0

    def __iter__(self):
        for record in self.records:
            self.read += 1
            yield record

    def stored(self):
        return StreamedSet(Path("org/set"), names=list(self.records[0]), content=self)


def test_one_box_in_a_stream_of_detection_is_no_grounding(tmp_path):
    image = {"bytes": picture(), "path": None}
    several = "<answer>[[1, 2, 30, 40], [5, 6, 70, 80]]</answer>"
    empty, one = "<answer>No Objects</answer>", "<answer>[[1, 2, 30, 40]]</answer>"
    for solutions in ([one, several], [empty, one], [empty] * 300 + [one]):
        stream = Stream([{"image": image, "problem": PROBLEM, "solution": s} for s in solutions])
        rows = list(rows_of(stream.stored()))
        assert [row.solution for row in rows] == solutions and stream.read == len(rows)
        assert {row.guess for row in rows} == {"detection"} and all(r.has_boxes for r in rows)
    names = [{"image": image, "problem": "?", "solution": s} for s in ("None", "rose")]
    assert [r.guess for r in rows_of(Stream(names).stored())] == ["classification"] * 2


@pytest.mark.parametrize("corners", [True, False])
def test_the_first_row_of_a_stream_of_coco_comes_early(corners):
    boxes = [[4.0, 5.0, 20.0, 15.0] if corners else [24.0, 5.0, 16.0, 10.0]]
    objects = {"bbox": boxes, "category": ["dog"]}
    image = {"bytes": picture(), "path": None}
    stream = Stream([{"image": image, "width": 40, "height": 20, "objects": objects}] * 3000)
    row = next(rows_of(stream.stored()))
    assert str([100, 250, 500, 750] if corners else [600, 250, 1000, 750]) in row.solution
    assert stream.read < 500


def test_bad_rows_of_a_stream_count_as_rows(tmp_path):
    report = Report_of(tmp_path)
    image, told = {"bytes": picture(), "path": None}, {"task": "classification"}
    good = Row(RowLocation(tmp_path, 1), image, "What?", "rose", told)
    rows = [BadRow(RowLocation(tmp_path, 0), "cut off"), good]
    assert len(list(streamed_rows(iter(rows), LoadOptions(tmp_path), report))) == 1
    assert (report.rows, report.good) == (2, 1)


def test_categories_that_a_crowd_stands_for_are_reported(tmp_path):
    boxes = [[4, 5, 20, 15], [0, 0, 40, 20], [1, 1, 1, 9]]
    objects = {"bbox": boxes, "category": ["dog", "cat", "bus"], "iscrowd": [0, 1, 0]}
    table = pa.table({"image": [{"bytes": picture(), "path": "9.png"}], "objects": [objects]})
    pq.write_table(table, tmp_path / "train.parquet")
    dataset, report = made(tmp_path, tmp_path)
    assert dataset["category"] == ["dog"] and not report.problems
    (note,) = report.notes
    assert "2 times a category of an image makes no row: a crowd region" in note
    assert "train.parquet, row 0: cat; " in note and "train.parquet, row 0: bus)" in note


def test_whole_numbers_of_over_64_bits_become_text(tmp_path):
    rows = [
        {"image": "1.png", "problem": "?", "solution": "rose", "id": n} for n in (2**53, 10**30)
    ]
    (tmp_path / "1.png").write_bytes(picture())
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    dataset, report = made(tmp_path / "rows.jsonl", tmp_path)
    assert report.good == 2 and dataset["id"] == [str(2**53), str(10**30)]


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.table(columns())
    twice = table.append_column("solution", table.column("problem"))
    pq.write_table(twice, tmp_path / "train.parquet")
    with pytest.raises(DataError, match="has 2 columns for solution: solution, solution. Leave"):
        made(tmp_path, tmp_path)
    renamed = table.append_column("text", table.column("problem"))
    pq.write_table(renamed, tmp_path / "train.parquet")
    with pytest.raises(DataError, match="2 columns for problem: problem, text.*or out of --col"):
        open_set(tmp_path, rename={"text": "problem"})
