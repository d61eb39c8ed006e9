"""Which files of a folder are read: by their names, through links, and never a part in silence."""

import json
from pathlib import Path

import pytest
from support.stored_sets import columns, command, picture, train_on, write_table

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import find_set, open_set, splits_of
from swift_vlrft.datasets.read import read_rows
from swift_vlrft.datasets.splits import WORDS, by_split

NAMES = {
    "train": """train train_0 train-part2 train2017 train_more training TRAIN Train trainA
        coco.train train-00000-of-00003 instances_train2017 train/0000 TRAIN/0 train2017/a
        training/data-00000-of-00003 train/a/0 train/train_0""",
    "validation": """validation val dev valid val2017 validation_0 VAL dev-00000-of-00001 val_unseen
        refcoco_val val/0 dev/data-00000-of-00001 minival/val_0 data/dev-00000-of-00001""",
    "test": "test testA testB testing eval evaluation test2017 test/0",
    "testA": "data/testA-00000-of-00001",
    "train_val": "data/train_val-00000-of-00001-0123456789abcdef",
    None: """0000 data-00000-of-00003 extra pretrained trainval latest contest devil evaluator rows
        minitrain data/extra-00000-of-00001""",
    DataError: "train_val train_val_0 train/val_0 val/a/train_0 validation/train testdev/train/val",
}


@pytest.mark.parametrize("split", NAMES)
def test_names_of_splits(split, tmp_path):
    for name in NAMES[split].split():
        file = tmp_path / f"{name}.parquet"
        if split is DataError:
            with pytest.raises(DataError, match=f"{name}.parquet"):
                by_split([file], tmp_path)
        else:
            assert by_split([file], tmp_path) == {file: split}, name


def test_the_words_are_those_of_datasets():
    from datasets.data_files import SPLIT_KEYWORDS

    words = {word: str(split) for split, found in SPLIT_KEYWORDS.items() for word in found}
    assert words == WORDS


# ---- folders ---------------------------------------------------------------------------------


def write(file, *names):
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
    ("parquet", {"train": "training train_more", "validation": "Dev", "test": "testing"}),
    ("jsonl", {"train": "train", "validation": "val2017"}),
    ("parquet", {"train": "train/0 train/1", "validation": "validation/0"}),
    ("parquet", {"train": "0 1"}),
    ("json", {"train": "rows-00000-of-00002 rows-00001-of-00002"}),
    (
        "parquet",
        {"train": "data/train-00000-of-00001", "train_more": "data/train_more-00000-of-00001"},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "files"), FOLDERS)
def test_check_convert_and_training_read_the_same_files(ending, files, tmp_path):
    source, out = tmp_path / "s", tmp_path / "out"
    for name in " ".join(files.values()).split():
        write(source / f"{name}.{ending}", name)
    assert splits_of(source) == list(files)
    for split, names in files.items():
        assert [row.solution for row in read_rows(source, split=split)] == sorted(names.split())
    rows, total = sorted(files["train"].split()), len(" ".join(files.values()).split())
    assert trained(source, tmp_path) == rows
    code, report = run("check", source)
    assert (code, report["good"]) == (0, total)
    splits = [word for split in files for word in ("--split", split)]
    code, converted = run("convert", source, out, *splits)
    assert (code, converted["rows"], splits_of(out)) == (0, total, list(files))
    assert trained(out, tmp_path) == rows


@pytest.mark.parametrize(
    ("ending", "files", "said"),
    [
        ("parquet", "train_val_0 train_1", "the split of train_val_0.parquet is unclear"),
        (
            "parquet",
            "main/train-00000-of-00001 more/train-00000-of-00001",
            "set: main/train-0.*, more/train-0.*. Give the file",
        ),
        ("parquet", "a/0 b/0", "set: a/0.parquet, b/0.parquet"),
        ("parquet", "train/a/0 train/b/0", "train/a/0.parquet, train/b/0.parquet"),
        ("parquet", "train a/train", "set: a/train.parquet, train.parquet"),
        ("parquet", "test/0", "no split 'train'; it has test"),
        ("jsonl", "dev extra", "extra.jsonl tell no split by their names, but others do"),
        ("jsonl", "a b", "a.jsonl, b.jsonl. Give the file of rows"),
    ],
)
def test_a_folder_that_is_no_single_set_is_refused(ending, files, said, tmp_path):
    paths = [write(tmp_path / "s" / f"{name}.{ending}", name) for name in files.split()]
    with pytest.raises(DataError, match=said):
        open_set(tmp_path / "s")
    for path, name in zip(paths, files.split(), strict=True):
        for split in splits_of(path):
            assert [row.solution for row in read_rows(path, split=split)] == [name]


def test_a_split_without_rows_is_a_problem(tmp_path):
    for ending in ("parquet", "jsonl"):
        write(tmp_path / ending / f"train.{ending}")
        write(tmp_path / ending / f"test.{ending}", "x")
    code, report = run("check", tmp_path / "parquet")
    (problem,) = report["problems"]
    assert (code, report["good"]) == (1, 1) and "'train'" in problem["problem"]
    code, said = run("check", tmp_path / "jsonl")
    assert code == 2 and "train.jsonlhasnorows" in said


def test_links_to_files_are_read_as_in_a_hubs_cache(tmp_path):
    write(tmp_path / "elsewhere" / "0.parquet", "a", "b")
    write(tmp_path / "s" / "validation" / "0.parquet", "d")
    (tmp_path / "s" / "train.parquet").symlink_to(tmp_path / "elsewhere" / "0.parquet")
    assert trained(tmp_path / "s", tmp_path) == ["a", "b"]
    assert run("check", tmp_path / "s")[1]["rows"] == 3


def test_files_in_other_formats_are_named(tmp_path):
    source = tmp_path / "s"
    write(source / "train.parquet", "a")
    for name in ("part.csv", "more/train.jsonl", "labels.json", "README.md", "dataset_infos.json"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b"{}")
    note, _ = run("check", source)[1]["notes"]
    assert note.endswith(": labels.json, more/train.jsonl, part.csv")
    code, said = run("convert", source, tmp_path / "out")
    assert code == 2 and "more/train.jsonl" in said  # its name says a split
    assert run("convert", source, tmp_path / "yes", "--split", "train")[0] == 0


@pytest.mark.parametrize("name", ["__MACOSX", "__pycache__", ".ipynb_checkpoints"])
def test_folders_that_hold_no_rows_are_left_alone(name, tmp_path):
    write(tmp_path / "train.jsonl", "a")
    (tmp_path / name).mkdir()
    (tmp_path / name / "train.jsonl").write_bytes(b"\0\5\26\7")
    assert run("check", tmp_path)[1]["rows"] == 1
    assert run("convert", tmp_path, tmp_path.parent / f"{tmp_path.name}-out")[0] == 0


def test_rows_in_the_folder_itself_come_before_annotations_below(tmp_path):
    write(tmp_path / "rows.jsonl", "x")
    write(tmp_path / "annotations" / "train.json", "y")
    assert trained(tmp_path, tmp_path) == ["x"]
    code, said = run("convert", tmp_path, tmp_path / "out")
    assert code == 2 and "annotations/train.json" in said


def test_annotations_of_coco_are_found_by_split_and_one_alone(tmp_path):
    folder = tmp_path / "annotations"
    folder.mkdir()
    content = {"images": [], "annotations": [], "categories": []}
    for name in ("instances_train2017", "instances_train2014", "instances_val2017"):
        (folder / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="instances_train2014.json: .* as a file alone, COCO's"):
        open_set(folder)
    (folder / "instances_train2014.json").unlink()
    for split, name in (("train", "train2017"), ("validation", "val2017")):
        assert find_set(folder, split).files == [folder / f"instances_{name}.json"]


def test_a_dataset_dict_has_the_splits_that_it_names(tmp_path):
    from datasets import Dataset, DatasetDict

    def part(name):
        return Dataset.from_dict(columns(1) | {"solution": [name]})

    parts = {"training": part("a"), "train_more": part("b"), "dev": part("c"), "val": part("d")}
    DatasetDict(parts).save_to_disk(tmp_path / "d")
    assert trained(tmp_path / "d", tmp_path) == ["a"]
    for split in ("dev", "val"):
        assert [row.solution for row in read_rows(tmp_path / "d", split=split)] == [
            {"dev": "c", "val": "d"}[split]
        ]
    for split, said in (("validation", "more than one split"), ("test", "no split 'test'")):
        with pytest.raises(DataError, match=f"{said}.* dev, train_more, training, val"):
            open_set(tmp_path / "d", split=split)


def test_where_a_folder_lies_hides_none_of_its_files(tmp_path, monkeypatch):
    folder = write(tmp_path / ".cache" / "set" / "train-0.parquet", "a").parent
    write(folder / ".half" / "test-0.parquet", "b")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for path in (folder, Path("../.cache/set")):
        assert [file.name for file in find_set(path).files] == ["train-0.parquet"]
        assert splits_of(path) == ["train"]


def test_roboflow_names_a_test_split_that_is_not_there(tmp_path):
    for split in ("train", "valid"):
        for name in ("images", "labels"):
            (tmp_path / split / name).mkdir(parents=True)
        (tmp_path / split / "images" / "1.png").write_bytes(picture())
        (tmp_path / split / "labels" / "1.txt").write_text("0 0.5 0.5 0.5 0.5")
    lines = [f"{key}: ../{name}/images" for key, name in (("train", "train"), ("val", "valid"))]
    config = tmp_path / "data.yaml"
    config.write_text("\n".join([*lines, "test: ../test/images", "names: [dog]"]))
    assert splits_of(tmp_path) == ["train", "validation"]
    code, report = run("check", tmp_path)
    assert (code, report["rows"]) == (0, 2)
    (tmp_path / "train.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"data.yaml and train.parquet: give the one"):
        splits_of(tmp_path)
    assert splits_of(config) == ["train", "validation"]


def test_another_data_yaml_beside_rows_is_not_yolo(tmp_path):
    write(tmp_path / "train.jsonl", "rose")
    (tmp_path / "data.yaml").write_text("filenames: mine\ntrain: train.jsonl\n")
    assert trained(tmp_path, tmp_path) == ["rose"]
