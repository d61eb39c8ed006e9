"""Which files of a folder are read: by their names, through links, and never a part in silence."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stored_sets import columns, command, picture, train_on, write_table

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import find_set, open_set, splits_of
from swift_vlrft.datasets.read import read_rows
from swift_vlrft.datasets.splits import split_of

NAMES = {
    "train": """train train_0 train-part2 train2017 train_more training TRAIN Train trainA
        coco.train train-00000-of-00003 refcoco_train_val instances_train2017 train/0000
        TRAIN/0 train2017/a training/data-00000-of-00003 a/train/b/0""",
    "validation": """validation val dev valid val2017 validation_0 VAL dev-00000-of-00001 val_unseen
        refcoco_val val/0 dev/data-00000-of-00001 minival/val_0""",
    "test": "test testA testB testing eval evaluation test2017 test/0",
    None: """0000 data-00000-of-00003 extra pretrained trainval latest contest devil evaluator rows
        minitrain train/val_0 validation/train""",
}


@pytest.mark.parametrize("split", NAMES)
def test_names_of_splits(split):
    root = Path("/sets/my_set")
    told = {name: split_of(root / f"{name}.parquet", root) for name in NAMES[split].split()}
    assert told == dict.fromkeys(told, split)


def hub_splits(path: str) -> set[str]:
    """What ``datasets`` makes of one file of a repository: the first group of patterns that
    matches.
    """
    from datasets import data_files as hub

    for group in (
        hub.DEFAULT_PATTERNS_SPLIT_IN_DIR_NAME, hub.DEFAULT_PATTERNS_SPLIT_IN_FILENAME,
    ):  # fmt: skip
        found = set()
        for split, patterns in group.items():
            for pattern in patterns:
                # fsspec's globs: ** is any folders, * stays within a name
                regex = re.escape(pattern).replace(r"\[", "[").replace(r"\]", "]")
                regex = regex.replace(r"\*\*/", "(?:.*/)?").replace(r"/\*\*", "/.*")
                regex = regex.replace(r"\*", "[^/]*")
                if re.fullmatch(regex, path):
                    found.add(str(split))
        if found:
            return found
    return set()


words = st.sampled_from(
    ["train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "extra",
     "data", "coco", "part", "0", "2017", "00000-of-00002", "pretrain", "latest"]
)  # fmt: skip
part = st.lists(words, min_size=1, max_size=3).flatmap(
    lambda found: st.sampled_from(["-", "_", " "]).map(lambda sep: sep.join(found))
)


@given(st.lists(part, min_size=1, max_size=3))
def test_where_the_hubs_library_names_one_split_so_do_we(parts):
    path = "/".join(parts) + ".parquet"
    said, ours = hub_splits(path), split_of(Path("/r") / path, Path("/r"))
    folders = [f for f in parts[:-1] if hub_splits(f"{f}/0.parquet")]
    if len(folders) + bool(hub_splits(f"{parts[-1]}.parquet")) > 1:
        return  # a folder and a name, or two folders, that speak of splits: ours may differ
    if len(said) == 1:
        assert {ours} == said
    else:
        assert (ours in said) if said else ours is None


# ---- folders ---------------------------------------------------------------------------------


def write(file: Path, *names: str) -> Path:
    """A file of rows of the classes ``names``, of the kind that its ending says."""
    rows = [{"image": {"bytes": picture(), "path": None}, "problem": "What?"} for _ in names]
    rows = [row | {"solution": name} for row, name in zip(rows, names, strict=True)]
    if file.suffix == ".parquet":
        return write_table(file, rows or dict.fromkeys(("image", "problem", "solution"), []))
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "a.png").write_bytes(picture())
    rows = [row | {"image": str(file.parent / "a.png")} for row in rows]
    text = json.dumps(rows) if file.suffix == ".json" else "\n".join(map(json.dumps, rows))
    file.write_text(text)
    return file


def run(*arguments):
    code, output = command("data", *arguments, "--json")
    return code, (json.loads(output) if code < 2 else output.replace(" ", ""))


def trained(path, tmp_path):
    return sorted(train_on(path, tmp_path / "cache")[0]["solution"])


FOLDERS = [
    # files, of which training reads, all that check and convert read, and those not read
    ("parquet", "train_0 train_1 validation", "train_0 train_1", 3, []),
    ("jsonl", "train2017 val2017", "train2017", 2, []),
    ("parquet", "TRAIN Dev", "TRAIN", 2, []),
    ("parquet", "training testing valid", "training", 3, []),
    ("parquet", "data-00000-of-00002 data-00001-of-00002", None, 2, []),
    ("jsonl", "data-00000-of-00002 data-00001-of-00002", None, 2, []),
    ("jsonl", "train dev extra", "train", 2, ["extra"]),
    ("parquet", "train train_more extra dev", "train train_more", 3, ["extra"]),
    ("jsonl", "train/0 train/1 validation/0", "train/0 train/1", 3, []),
    ("parquet", "train/val_0 train/train_1", "train/train_1", 1, ["train/val_0"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "files", "train", "total", "unread"), FOLDERS)
def test_check_convert_and_training_read_the_same_files(
    ending, files, train, total, unread, tmp_path
):
    source, out = tmp_path / "s", tmp_path / "out"
    for name in files.split():
        write(source / f"{name}.{ending}", name)
    rows = trained(source, tmp_path)
    assert rows == sorted((train or files).split())
    code, report = run("check", source)
    assert (code, report["rows"], report["good"]) == (0, total, total)
    notes = " ".join(report["notes"])
    assert all(name in notes for name in unread) and ("not read" in notes) == bool(unread)
    code, converted = run("convert", source, out)
    if unread:
        assert code == 2 and unread[0] in converted and not out.exists()
        splits = [word for split in splits_of(source) for word in ("--split", split)]
        code, converted = run("convert", source, out, *splits)
        assert any(unread[0] in note for note in converted["notes"])
    assert (code, converted["rows"]) == (0, total)
    assert trained(out, tmp_path) == rows and run("check", out)[1]["rows"] == total


@pytest.mark.parametrize(
    ("files", "apart"),
    [
        ("main/train-00000-of-00001 socratic/train-00000-of-00001", ["main", "socratic"]),
        ("data/a/train/0 data/b/train_0 data/b/test", ["data/a", "data/b"]),
        ("a/0 b/0", ["a", "b"]),
        ("train/a/0 train/b/0 test/a/0", []),
        ("train_0/x train_1/x", []),
        ("data/train-00000-of-00002 data/train-00001-of-00002", []),
        ("0 1", []),
    ],
)
def test_folders_that_may_be_several_sets_are_named(files, apart, tmp_path):
    for name in files.split():
        write(tmp_path / "s" / f"{name}.parquet", name)
    (note,) = run("check", tmp_path / "s")[1]["notes"] or [""]
    assert ("read as one set" in note) == bool(apart)
    assert f"what lies in {', '.join(apart)} is" in note or not apart
    assert run("convert", tmp_path / "s", tmp_path / "out")[1]["notes"] == [note] * bool(apart)


def test_a_split_without_rows_is_a_problem(tmp_path):
    for ending in ("parquet", "jsonl"):
        write(tmp_path / ending / f"train.{ending}")
        write(tmp_path / ending / f"test.{ending}", "x")
    code, report = run("check", tmp_path / "parquet")
    (problem,) = report["problems"]
    assert (code, report["good"]) == (1, 1) and "'train'" in problem["problem"]
    code, said = run("check", tmp_path / "jsonl")
    assert code == 2 and "train.jsonlhasnorows" in said


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_a_file_of_no_split_is_read_where_it_is_asked_for(ending, tmp_path):
    for name in ("train", "extra", "dev"):
        write(tmp_path / "s" / f"{name}.{ending}", name)
    (row,) = read_rows(tmp_path / "s", split="extra")
    assert row.solution == "extra"
    splits = ("--split", "train", "--split", "dev", "--split", "extra")
    code, converted = run("convert", tmp_path / "s", tmp_path / "out", *splits)
    assert (code, converted["rows"]) == (0, 3)
    with pytest.raises(DataError, match=r"'test'.* train, validation, .* extra"):
        open_set(tmp_path / "s", split="test")
    (tmp_path / "s" / f"train.{ending}").unlink()
    with pytest.raises(DataError, match="'train' .* validation, .* extra"):  # no training set
        open_set(tmp_path / "s")


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_links_are_followed_and_a_circle_ends(ending, tmp_path):
    write(tmp_path / "elsewhere" / f"0.{ending}", "a", "b")
    write(tmp_path / "blobs" / "x" / f"1.{ending}", "c")
    source = tmp_path / "s"
    source.mkdir()
    (source / "train").symlink_to(tmp_path / "elsewhere")
    (source / f"train_1.{ending}").symlink_to(tmp_path / "blobs" / "x" / f"1.{ending}")
    write(source / "validation" / f"0.{ending}", "d")
    (source / "validation" / "up").symlink_to(source)
    assert trained(source, tmp_path) == ["a", "b", "c"]
    assert run("check", source)[1]["rows"] == 4
    assert run("convert", source, tmp_path / "out")[1]["rows"] == 4
    (tmp_path / "blobs" / "x" / f"1.{ending}").unlink()
    code, report = run("check", source)
    assert code == 1 and any(f"train_1.{ending}" in p["place"] for p in report["problems"])


def test_files_of_other_kinds_are_named(tmp_path):
    source = tmp_path / "s"
    write(source / "train.parquet", "a")
    for name in ("train2.pq", "part.csv", "data.arrow", "more.jsonl.gz", "labels.json"):
        (source / name).write_bytes(b"{}")
    for name in ("README.md", "1.png", "dataset_infos.json", ".gitattributes", "LICENSE", "x.py"):
        (source / name).write_bytes(b"{}")
    (note,) = run("check", source)[1]["notes"]
    assert note.endswith(": data.arrow, labels.json, more.jsonl.gz, part.csv, train2.pq")
    code, said = run("convert", source, tmp_path / "out")
    assert code == 2 and "train2.pq" in said  # its name says a split
    (source / "train2.pq").unlink()
    code, converted = run("convert", source, tmp_path / "out")
    assert code == 0 and "part.csv" in converted["notes"][0]
    write(source / "train.jsonl", "b")  # a copy, in another form
    code, said = run("convert", source, tmp_path / "no")
    assert code == 2 and "train.jsonl" in said
    assert run("convert", source, tmp_path / "yes", "--split", "train")[0] == 0


@pytest.mark.parametrize("name", ["__MACOSX", "__pycache__", ".ipynb_checkpoints"])
def test_folders_that_hold_no_rows_are_left_alone(name, tmp_path):
    write(tmp_path / "train.jsonl", "a")
    (tmp_path / name).mkdir()
    (tmp_path / name / "train.jsonl").write_bytes(b"\0\5\26\7")
    assert run("check", tmp_path)[1]["rows"] == 1
    assert run("convert", tmp_path, tmp_path.parent / f"{tmp_path.name}-out")[0] == 0


def test_json_files_of_which_no_name_tells_a_split(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, "x")
    with pytest.raises(DataError, match="a.jsonl, b.jsonl"):
        open_set(tmp_path)
    assert find_set(tmp_path) is None  # ms-swift may know it
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).rename(tmp_path / f"rows-0000{name[0] == 'b':d}-of-00002.jsonl")
    assert trained(tmp_path, tmp_path) == ["x", "x"]


def test_rows_in_the_folder_itself_come_before_annotations_below(tmp_path):
    write(tmp_path / "rows.jsonl", "x")
    write(tmp_path / "annotations" / "train.json", "y")
    assert trained(tmp_path, tmp_path) == ["x"]
    code, said = run("convert", tmp_path, tmp_path / "out")
    assert code == 2 and "annotations/train.json" in said


def test_several_annotation_files_of_coco_are_no_set(tmp_path):
    folder = tmp_path / "annotations"
    folder.mkdir()
    content = {"images": [], "annotations": [], "categories": []}
    for name in ("instances_train2017", "person_keypoints_train2017", "instances_val2017"):
        (folder / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="instances_train2017.json, person"):
        find_set(folder)
    (folder / "person_keypoints_train2017.json").unlink()
    for split, name in (("train", "train2017"), ("validation", "val2017")):
        for path in (folder, tmp_path):
            assert find_set(path, split).files == [folder / f"instances_{name}.json"]


def test_a_dataset_dict_is_read_by_the_same_names(tmp_path):
    from datasets import Dataset, DatasetDict

    def part(name):
        return Dataset.from_dict(columns(1) | {"solution": [name]})

    parts = {"training": part("a"), "train_more": part("b"), "dev": part("c"), "extra": part("d")}
    DatasetDict(parts).save_to_disk(tmp_path / "d")
    assert trained(tmp_path / "d", tmp_path) == ["a", "b"]
    assert run("check", tmp_path / "d")[1]["rows"] == 4
    assert run("convert", tmp_path / "d", tmp_path / "out")[1]["rows"] == 4
    assert trained(tmp_path / "out", tmp_path) == ["a", "b"]
    assert run("check", tmp_path / "out")[1]["rows"] == 4
    assert splits_of(tmp_path / "out") == ["train", "validation", "extra"]
    DatasetDict({"val": part("a"), "validation": part("b")}).save_to_disk(tmp_path / "v")
    assert run("convert", tmp_path / "v", tmp_path / "both")[1]["rows"] == 2
