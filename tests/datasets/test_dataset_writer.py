"""A folder for a hub: what ``datasets`` and Parquet tools find in it, and what a kill leaves."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from support.written_sets import digests, png, row

from swift_vlrft.datasets import BadRow, DataError, RowLocation
from swift_vlrft.datasets.writer import write_folder


def test_load_dataset_shows_pictures_splits_and_further_columns(tmp_path):
    from datasets import load_dataset

    folder = tmp_path / "shapes"
    train = [row(i, image_id=i, objects={"bbox": [[1.0, 2.0, 3.0, 4.0]]}) for i in range(250)]
    written = write_folder(
        folder,
        {"train": train, "test": [row(0)]},
        shard_bytes=5_000,
    )
    assert written.rows == 251
    names = sorted(file.name for file in (folder / "data").iterdir())
    assert names[0] == "test-00000-of-00001.parquet" and len(names) > 2
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {name: len(part) for name, part in loaded.items()} == {"train": 250, "test": 1}
    assert loaded["train"][249]["image"].getpixel((0, 0)) == (249, 30, 30)
    assert loaded["train"][7]["objects"]["bbox"] == [[1.0, 2.0, 3.0, 4.0]]
    assert loaded["test"][0]["image_id"] is None
    assert loaded["train"].column_names[:5] == ["image", "problem", "solution", "task", "frame"]


def test_the_card_states_features_counts_and_leaves_the_licence_to_its_owner(tmp_path):
    write_folder(tmp_path / "s", {"train": [row(i) for i in range(3)]})
    text = (tmp_path / "s" / "README.md").read_text()
    _, head, body = text.split("---\n", 2)
    card = yaml.safe_load(head)
    assert {"name": "image", "dtype": "image"} in card["dataset_info"]["features"]
    (split,) = card["dataset_info"]["splits"]
    assert (split["name"], split["num_examples"]) == ("train", 3)
    assert split["num_bytes"] == sum(len(png((i, 30, 30))) for i in range(3))
    assert card["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*"}]
    assert card["task_categories"] == ["object-detection"]
    assert "license" not in card and "# license:" in head
    assert "| train | 3 |" in body and "detection 3" in body and "norm1000 3" in body


def test_row_groups_are_small_and_local_paths_stay_at_home(tmp_path):
    write_folder(
        tmp_path / "s",
        {"train": [row(i) for i in range(450)]},
    )
    (file,) = (tmp_path / "s" / "data").iterdir()
    about = pq.ParquetFile(file)
    assert [about.metadata.row_group(i).num_rows for i in range(5)] == [100, 100, 100, 100, 50]
    assert b"/home/me" not in file.read_bytes()
    assert about.read(columns=["image.path"]).to_pylist()[3]["image"]["path"] == "3.png"
    features = json.loads(about.schema_arrow.metadata[b"huggingface"])["info"]["features"]
    assert features["image"]["_type"] == "Image"


def test_a_column_that_appears_late_or_widens_is_the_same_in_every_shard(tmp_path):
    items = [row(i) for i in range(100)]
    items += [row(i, area=i, note=None) for i in range(100, 200)]
    items += [row(i, area=0.5, note="late") for i in range(200, 230)]
    write_folder(tmp_path / "s", {"train": items}, shard_bytes=1)
    files = sorted((tmp_path / "s" / "data").iterdir())
    assert len(files) == 3
    assert len({str(pq.read_schema(file)) for file in files}) == 1
    found = [r for f in files for r in pq.read_table(f, columns=["area", "note"]).to_pylist()]
    assert [found[i]["area"] for i in (0, 150, 229)] == [None, 150.0, 0.5]
    assert [found[i]["note"] for i in (0, 150, 229)] == [None, None, "late"]


def test_a_column_of_two_types_is_named(tmp_path):
    items = [row(i, id=i) for i in range(100)] + [row(100, id="abc")]
    with pytest.raises(DataError, match=r"column 'id' holds values of several types \(int64 and s"):
        write_folder(tmp_path / "s", {"train": items})
    with pytest.raises(DataError, match="column 'id' holds values of several types"):
        write_folder(tmp_path / "t", {"train": items[90:]})
    assert not (tmp_path / "s").exists()


def test_what_is_left_out_is_listed_and_nothing_at_all_is_an_error(tmp_path):
    bad = BadRow(RowLocation(Path("a.parquet"), 1), "the image is cut off")
    written = write_folder(tmp_path / "s", {"train": [row(0), bad, row(2)]})
    assert written.left_out == [bad] and written.rows == 2
    listed = (tmp_path / "s" / "left_out.jsonl").read_text()
    assert json.loads(listed) == {"place": str(bad.place), "reason": bad.problem}
    with pytest.raises(DataError, match=r"no row to write; a.parquet, row 1: the image is cut off"):
        write_folder(tmp_path / "t", {"train": [bad]})
    assert not (tmp_path / "t").exists()


def test_a_folder_that_is_there_is_never_written_over(tmp_path):
    (tmp_path / "s").mkdir()
    write_folder(tmp_path / "s", {"train": [row(0)]})  # empty: fine
    before = digests(tmp_path / "s")
    with pytest.raises(DataError, match="is there already"):
        write_folder(tmp_path / "s", {"train": [row(1)]})
    assert digests(tmp_path / "s") == before


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", [1, 120, 401])
def test_an_interrupted_call_leaves_nothing_and_the_next_one_ends_in_the_same_bytes(
    tmp_path, after
):
    items = [row(i, **({"area": i} if i >= 300 else {})) for i in range(640)]
    items.insert(310, BadRow(RowLocation(Path("a"), 310), "bad"))

    def broken():
        yield from items[:after]
        raise Killed

    with pytest.raises(Killed):
        write_folder(tmp_path / "a" / "s", {"train": broken()}, shard_bytes=20_000)
    assert not list((tmp_path / "a").iterdir())
    for name in "ab":
        write_folder(tmp_path / name / "s", {"train": items}, shard_bytes=20_000)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["s"]


WRITER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.written_sets import row
from swift_vlrft.datasets.writer import write_folder
def slow():
    for i in range(600):
        time.sleep(0.001)
        yield row(i)
write_folder(Path({folder!r}), {{"train": slow()}}, shard_bytes=20_000)
"""


def test_kill_nine_leaves_nothing_that_looks_whole_and_a_second_call_finishes(tmp_path):
    folder = tmp_path / "killed" / "s"
    script = WRITER.format(tests=str(Path(__file__).parents[1]), folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", script])
    staging = folder.parent / ".s.unfinished"
    deadline = time.monotonic() + 60
    while not (staging / "train-1.arrow").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    with pytest.raises(DataError, match="written by another process"):
        write_folder(folder, {"train": [row(0)]})
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not folder.exists()
    items = [row(i) for i in range(600)]
    written = write_folder(folder, {"train": items}, shard_bytes=20_000)
    assert written.rows == 600 and not staging.exists()
    whole = tmp_path / "whole" / "s"
    write_folder(whole, {"train": items}, shard_bytes=20_000)
    assert digests(folder) == digests(whole)


@pytest.mark.parametrize("split", ["", "a/b", "../a", "my-split", "a b"])
def test_a_split_must_be_a_name_that_hubs_take(split, tmp_path):
    with pytest.raises(DataError, match="is no name"):
        write_folder(tmp_path / "out", {split: [row(1)]})
    assert not list(tmp_path.iterdir())


def test_text_that_no_file_can_hold_names_its_column(tmp_path):
    with pytest.raises(DataError, match="the column 'note' holds text that no file can store"):
        write_folder(tmp_path / "out", {"train": [row(1, note="\ud800")]})


def test_a_whole_number_of_over_64_bits_is_refused_by_its_column():
    from swift_vlrft.datasets.writer import table_of

    row = {"image": {"bytes": b"", "path": None}, "problem": "?", "solution": "rose"}
    with pytest.raises(DataError, match="the column 'id' holds a whole number of over 64 bits"):
        table_of([row | {"id": 10**30}])
