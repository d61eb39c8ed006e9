"""Every form a set can lie on disk in, to the same rows; files that are damaged or no set. What
the records of published sets say is in test_published_sets.py.
"""

import json
import random
import re
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.stored_sets import (
    FORMS,
    PROBLEM,
    SIZE,
    columns,
    jsonl,
    parquet_folder,
    picture,
    saved_dict,
    shown,
    train_on,
)
from support.written_sets import write_set

from swift_vlrft.datasets import BadRow, DataError, open_image, read_rows
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.instances import read_instances
from swift_vlrft.datasets.row import RowLocation

ROW = {"image": "a.png", "problem": "Where?", "solution": "rose"}


def refused(path, *tokens, **options):
    """Reading stops, and the message has these."""
    with pytest.raises(DataError) as error:
        list(read_rows(path, **options))
    assert all(token in str(error.value) for token in tokens), error.value


@pytest.mark.parametrize("write", FORMS)
def test_every_form_gives_the_same_rows(write, tmp_path):
    path = write(tmp_path)
    rows = list(read_rows(path))
    assert [row.problem for row in rows] == [PROBLEM] * 3
    assert [row.solution for row in rows] == columns()["solution"]
    for row in rows:
        assert (row.columns["task"], row.guess) == (None, "detection")  # nobody states it
        assert row.columns["frame"] == "norm1000" and row.has_boxes
        image = open_image(row.image, row.place)
        assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", SIZE, (255, 0, 0))
    user = {"role": "user", "content": f"<image>{PROBLEM}"}
    for with_answers in (False, True):
        trained, report = train_on(path, tmp_path / "cache", with_answers=with_answers)
        assert (report.rows, report.good, report.problems) == (3, 3, [])
        assert trained["solution"] == columns()["solution"]
        assert trained["task"] == [None] * 3 and trained["frame"] == ["norm1000"] * 3
        for row in trained:
            answer = {"role": "assistant", "content": row["solution"]}
            assert row["messages"] == [user] + [answer] * with_answers
            assert shown(row).size == SIZE


@pytest.mark.parametrize("write", [parquet_folder, saved_dict])
def test_a_path_is_no_pattern(write, tmp_path):
    (folder := tmp_path / "a[1] *?#{x},y%20").mkdir()
    path = write(folder)
    assert len(list(read_rows(path))) == len(train_on(path, tmp_path / "cache")[0]) == 3


@pytest.mark.parametrize("saved", [False, True])
def test_class_labels_are_their_names_in_every_column(saved, tmp_path):
    from datasets import ClassLabel, Dataset, Features, List, Value
    from datasets import Image as ImageFeature

    def stored(name, columns, features):
        (tmp_path / name).mkdir()
        content = Dataset.from_dict(columns, features=Features(features))
        if saved:
            content.save_to_disk(tmp_path / name)
        else:
            content.to_parquet(tmp_path / name / "train.parquet")
        return tmp_path / name

    features = {
        "image": ImageFeature(),
        "problem": Value("string"),
        "solution": ClassLabel(names=["cat", "dog"]),
        "task": ClassLabel(names=["classification", "choice"]),
        "scene": ClassLabel(names=["day", "night"]),
        "seen": List(ClassLabel(names=["sky", "sea"])),
    }
    image = {"bytes": picture(), "path": None}
    content = {
        "image": [image] * 2, "problem": ["Which?"] * 2, "solution": ["dog", "cat"],
        "task": ["classification", None], "scene": ["night", -1],  # -1: not labelled
        "seen": [["sea", "sky"], []],
    }  # fmt: skip
    path = stored("set", content, features)
    rows = [(row.solution, row.columns["task"]) for row in read_rows(path)]
    assert rows == [("dog", "classification"), ("cat", None)]
    trained, _ = train_on(path, tmp_path / "cache")
    assert trained["solution"][:] == ["dog", "cat"]
    assert (trained["scene"][:], trained["seen"][:]) == (["night", None], [["sea", "sky"], []])
    convert_folder(path, tmp_path / "out")
    copied = list(read_rows(tmp_path / "out"))
    assert [row.solution for row in copied] == ["dog", "cat"]
    assert [row.columns["scene"] for row in copied] == ["night", None]
    assert [row.columns["seen"] for row in copied] == [["sea", "sky"], []]
    # Another class of the set does not name the categories of its boxes.
    objects = {"bbox": List(List(Value("float64"))), "category": List(ClassLabel(names=["a", "b"]))}
    content = {
        "image": [image], "scene": ["x"],
        "objects": [{"bbox": [[24.0, 5.0, 40.0, 15.0]], "category": [1]}],
    }  # fmt: skip
    scene = ClassLabel(names=["x", "y"])
    features = {"image": ImageFeature(), "scene": scene, "objects": objects}
    (row,) = read_rows(stored("boxes", content, features))
    assert row.columns["category"] == "b" and "[600, 250, 1000, 750]" in row.solution


def test_shards_that_number_their_classes_differently_are_refused(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Value

    for n, names in enumerate((["cat", "dog"], ["dog", "cat"])):
        text = {"image": Value("string"), "problem": Value("string")}
        features = Features(text | {"solution": ClassLabel(names=names)})
        content = Dataset.from_list([ROW | {"solution": "cat"}], features=features)
        content.to_parquet(tmp_path / f"train-{n}.parquet")
    refused(tmp_path, "train-1.parquet", "train-0")


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_json_lines_go_by_what_is_in_them(end, tmp_path):
    """``Dataset.to_json("rows.json")`` writes a row a line; datasets and ms-swift read that."""
    file, line = tmp_path / "rows.json", json.dumps(ROW)
    for content, rows in (
        (f"{line}\n{line}{end}", 2),
        (f"\ufeff{line}\r\n\r\n{line}{end}", 2),
        (f"[{line},\n{line}]{end}", 2),
        (json.dumps([ROW], indent=1) + end, 1),
    ):
        file.write_bytes(content.encode())
        assert [row.solution for row in read_rows(file)] == ["rose"] * rows
    file.write_text(f"{line}\n{line[:-5]}\n{line}\n")
    good, bad, other = read_rows(file, keep_going=True)
    assert good.solution == other.solution == "rose" and "line 2" in bad.problem
    file.write_text(line + end)
    refused(file, "one object with image, problem, solution")


# ---- bad input -------------------------------------------------------------------------------


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"image": "a.png", "question": "what?", "answer": "rose"}))
    refused(path, "problem, solution", "image, question, answer")
    (row,) = read_rows(path, rename={"question": "problem", "answer": "solution"})
    assert (row.problem, row.solution, row.columns["task"]) == ("what?", "rose", None)


OBJECT = json.dumps(ROW)
LINES, LIST = "\n".join([OBJECT] * 3), json.dumps([ROW] * 3)
HEADER = "image,problem,solution"
IMAGES = [{"id": 9, "file_name": "9.png", "width": 40, "height": 20}]
OBJECTS = [{"id": 1, "image_id": 9, "category_id": 18, "bbox": [4, 5, 16, 10]}]
COCO = {"images": IMAGES, "categories": [{"id": 18, "name": "dog"}], "annotations": OBJECTS}
NO_SETS = [
    ("x.jsonl", "\n", "x.jsonl has no rows"),
    ("notes.txt", "\n", "save_to_disk, no data.yaml of a YOLO folder; write a row a line"),
    *[(name, "[1, 2", f"{name}: not JSON") for name in ("x.json", "instances_x.json")],
    *[(name, "[" * 100_000, f"{name}: not JSON") for name in ("x.json", "instances_x.json")],
    ("x.json", LIST.encode("utf-32"), "x.json: not UTF-8"),
    ("x.csv", "image,problem,solution\n0.png,a,b\n", "from_csv"),
    ("x.jsonl", '{"messages": 1, "images": 1}', "Rows with messages are"),
    ("x.jsonl", '{"messages": 1, "images": 1, "solution": 1}', "Rows with messages are"),
    ("x.jsonl", '{"query": 1, "response": 1, "images": 1}', "Rows with query are"),
    ("x.jsonl", '{"instruction": 1}', "Rows with instruction are"),
    ("instances_train2017.json", json.dumps(COCO), "ROOT_IMAGE_DIR=FOLDER"),  # has no images
    # training refuses it, too
    ("x.jsonl", '{"image": 1, "problem": 1, "response": 1}', "lacks the column solution"),
]


@pytest.mark.parametrize(("name", "content", "said"), NO_SETS)
def test_a_file_that_is_no_set_says_why(name, content, said, tmp_path):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(tmp_path if name == "notes.txt" else file, said)
    if name == "instances_x.json":
        with pytest.raises(DataError, match=re.escape(said)):
            read_instances(file)


@pytest.mark.parametrize("damage", ["cut short", "inside"])
def test_a_damaged_shard_is_named_and_stops_the_set(damage, tmp_path):
    parquet_folder(tmp_path)
    broken = tmp_path / "data" / "train-00000-of-00002.parquet"
    content = broken.read_bytes()
    inside = content[:20] + bytes(180) + content[200:]
    broken.write_bytes(inside if damage == "inside" else content[:-100])
    refused(tmp_path, broken.name, keep_going=True)
    with pytest.raises(DataError, match=broken.name):
        train_on(tmp_path, tmp_path / "cache")


def test_a_line_that_is_no_row_leaves_the_others(tmp_path):
    path = jsonl(tmp_path)
    first = path.read_bytes().splitlines(keepends=True)[0]
    deep = b"[" * 100_000 + b"\n"
    path.write_bytes(
        b"\xef\xbb\xbf" + first + b'{"image": \n' + first + b"\xff\n[1]\n" + deep + first
    )
    rows = list(read_rows(path, keep_going=True))
    bad = [row for row in rows if isinstance(row, BadRow)]
    assert len(rows) == 7 and [row.place.row for row in bad] == [1, 3, 4, 5]
    for row, words in zip(bad, ("not JSON", "not UTF-8", "an object", "not JSON"), strict=True):
        assert f"line {row.place.row + 1}" in row.problem and words in row.problem
    refused(path, "rows.jsonl, row 1: line 2")


def test_a_shard_without_rows_is_read_as_none(tmp_path):
    parquet_folder(tmp_path)
    shard = tmp_path / "data" / "train-00000-of-00002.parquet"
    rows = pq.read_table(shard)
    pq.write_table(rows.slice(0, 0), shard)
    left = 3 - len(rows)
    assert len(list(read_rows(tmp_path))) == len(train_on(tmp_path, tmp_path / "c")[0]) == left


def test_shards_with_other_columns_are_refused(tmp_path):
    write_set(tmp_path, 2, "a.parquet")
    write_set(tmp_path, 2, "b.parquet", solution=None)
    refused(tmp_path, "b.parquet: it has other", "its columns are image, problem")


def test_photographs_of_parquet_are_read_a_few_at_a_time(tmp_path):
    noise = random.Random(0).randbytes(10_000)
    images = [{"bytes": noise[i:] + noise[:i], "path": None} for i in range(1200)]
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": images}), file, row_group_size=100)
    del images
    stored = ColumnFiles(file, kind="Parquet")
    tracemalloc.start()
    try:
        stored.add(file)
        rows = sum(1 for _ in stored.records())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 1200 and peak < 5e6  # of 12 MB


def test_a_column_that_datasets_has_no_type_for_is_to_be_dropped(tmp_path):
    kind = pa.map_(pa.string(), pa.int64())
    table = pa.table(columns()).append_column("tags", pa.array([[("a", 1)]] * 3, kind))
    pq.write_table(table, tmp_path / "train.parquet")
    refused(tmp_path, "train.parquet", "drop or cast the column")


def test_a_problem_has_its_place_in_front_and_no_other(tmp_path):
    """Row 1 keeps its place though its problem ends in "row 12"."""
    bad = BadRow(RowLocation(tmp_path / "a.jsonl", 1), f"as {tmp_path / 'a.jsonl'}, row 12")
    assert str(bad).startswith(f"{tmp_path / 'a.jsonl'}, row 1: as ")
    (tmp_path / "a.jsonl").write_text(
        '{"image": "a.png", "problem": "?", "solution": "x"}\n{"a\n3\n'
    )
    read = read_rows(tmp_path / "a.jsonl", keep_going=True)
    problems = [row for row in read if isinstance(row, BadRow)]
    assert len(problems) == 2
    for row in problems:
        assert str(tmp_path) not in row.problem
        assert str(row) == f"{row.place}: {row.problem}"
