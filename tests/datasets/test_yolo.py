"""YOLO folders as tools write them; rows of whole sets are in published_sets.jsonl."""

import pytest
from support.stored_sets import picture
from support.written_sets import check, write_rows

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import splits_of


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
    code, report = check(tmp_path)
    assert (code, report["rows"]) == (0, 2)
    (tmp_path / "train.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"data.yaml and train.parquet: give the one"):
        splits_of(tmp_path)
    assert splits_of(config) == ["train", "validation"]


def test_another_data_yaml_beside_rows_is_not_yolo(tmp_path):
    (tmp_path / "0.png").write_bytes(picture())
    row = {"image": "0.png", "problem": "What? In <answer>.", "solution": "rose"}
    write_rows(tmp_path / "train.jsonl", row)
    (tmp_path / "data.yaml").write_text("filenames: mine\ntrain: train.jsonl\n")
    code, report = check(tmp_path)
    assert (code, report["rows"]) == (0, 1)
