"""A folder for a hub: what ``datasets`` and Parquet tools find in it, and what a kill leaves."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.written_sets import digests, row, rows_in

from swift_vlrft.datasets import BadRow, DataError, RowLocation, writer
from swift_vlrft.datasets.writer import write_folder

BAD = BadRow(RowLocation(Path("a.parquet"), 1), "the image is cut off")


def test_load_dataset_shows_pictures_splits_and_further_columns(tmp_path):
    from datasets import load_dataset

    folder = tmp_path / "shapes"
    train = [row(i, image_id=i, objects={"bbox": [[1.0, 2.0, 3.0, 4.0]]}) for i in range(250)]
    written = write_folder(folder, {"train": train, "test": [row(0)]}, shard_bytes=5_000)
    names = sorted(file.name for file in (folder / "data").iterdir())
    assert names[0] == "test-00000-of-00001.parquet" and len(names) == written.shards > 2
    assert written.rows == 251
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {name: len(part) for name, part in loaded.items()} == {"train": 250, "test": 1}
    assert loaded["train"][249]["image"].getpixel((0, 0)) == (249, 30, 30)
    assert loaded["train"][7]["objects"]["bbox"] == [[1.0, 2.0, 3.0, 4.0]]
    assert loaded["test"][0]["image_id"] is None
    assert loaded["train"].column_names[:5] == ["image", "problem", "solution", "task", "frame"]


@pytest.mark.parametrize(("size", "most"), [(0, 100), (4_000, 42)])
def test_row_groups_are_small_and_images_are_stored_as_they_came(size, most, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "GROUP_BYTES", 16 * 2**20 // 100)
    rows = [row(i) for i in range(150)]
    for wide in rows:
        wide["image"]["bytes"] += bytes(size)
    write_folder(tmp_path / "s", {"train": rows})
    (file,) = (tmp_path / "s" / "data").iterdir()
    about = pq.ParquetFile(file)
    groups = [about.metadata.row_group(i).num_rows for i in range(about.num_row_groups)]
    assert max(groups) <= most and sum(groups) == 150
    images = [stored["image"] for stored in rows_in(tmp_path / "s")]
    assert [image["bytes"] for image in images] == [wide["image"]["bytes"] for wide in rows]
    assert images[3]["path"] == "3.png" and b"/home/me" not in file.read_bytes()
    features = json.loads(about.schema_arrow.metadata[b"huggingface"])["info"]["features"]
    assert features["image"]["_type"] == "Image"


def test_rows_keep_their_order_and_late_columns_are_the_same_in_every_shard(tmp_path):
    items = [row(i) for i in range(100)]
    items += [row(i, area=i, note=None) for i in range(100, 200)]
    items += [row(i, area=0.5, note="late") for i in range(200, 230)]
    splits = {"train": items, "test": [row(0)]}
    written = write_folder(tmp_path / "s", splits, shard_bytes=5_000)
    files = sorted((tmp_path / "s" / "data").iterdir())
    assert written.shards > 2 and len({str(pq.read_schema(file)) for file in files}) == 1
    stored = {item["problem"]: item for item in rows_in(tmp_path / "s")}
    assert list(stored) == [item["problem"] for item in items]
    numbered = [stored[items[i]["problem"]] for i in (0, 150, 229)]
    assert [item["area"] for item in numbered] == [None, 150.0, 0.5]
    assert [item["note"] for item in numbered] == [None, None, "late"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ([{"id": 1}] * 96 + [{"id": "abc"}], "row 96 of train: .* 'id' .*int64 vs string"),
        ([{"id": None}, {"id": 1}, {"id": "abc"}], "row 2 of train: .* 'id' .*int64"),
        ([{"note": "\ud800"}], "'note' cannot be stored"),
        ([{"\ud800": 1}], r"'\\ud800' cannot be stored"),
        ([{"id": 10**30}], "'id' cannot be stored"),
        ([{"id": {}}], "Parquet: .*'id'"),
    ],
)
def test_a_column_that_no_file_can_hold_is_named(more, named, tmp_path):
    with pytest.raises(DataError, match=named):
        write_folder(tmp_path / "s", {"train": [row(0, **columns) for columns in more]})
    assert not list(tmp_path.iterdir())


def test_what_is_left_out_is_listed_and_nothing_at_all_is_an_error(tmp_path):
    written = write_folder(tmp_path / "s", {"train": [row(0), BAD, row(2)]})
    assert written.left_out == [BAD] and written.rows == 2
    listed = (tmp_path / "s" / "left_out.jsonl").read_text()
    assert json.loads(listed) == {"place": str(BAD.place), "reason": BAD.problem}
    with pytest.raises(DataError, match="a.parquet, row 1: the image is cut off"):
        write_folder(tmp_path / "t", {"train": [BAD]})
    assert not (tmp_path / "t").exists()


def test_a_folder_that_is_there_is_never_written_over(tmp_path):
    (tmp_path / "s").mkdir()
    write_folder(tmp_path / "s", {"train": [row(0)]})  # empty: fine
    before = digests(tmp_path / "s")
    with pytest.raises(DataError, match="is there already"):
        write_folder(tmp_path / "s", {"train": [row(1)]})
    assert digests(tmp_path / "s") == before


@pytest.mark.parametrize("split", ["", "a/b", "../a", "my-split", "a b"])
def test_a_split_must_be_a_name_that_hubs_take(split, tmp_path):
    with pytest.raises(DataError, match="is no valid name"):
        write_folder(tmp_path / "out", {split: [row(1)]})
    assert not list(tmp_path.iterdir())
