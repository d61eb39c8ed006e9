"""A file of annotations is decoded once, however often the set is asked for."""

import json
import sys
from collections import Counter

import pytest
from support.stored_sets import picture
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import instances, json_files
from swift_vlrft.datasets.instances import forget


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "9.png").write_bytes(picture())
    content = {
        "images": [{"id": 9, "file_name": "9.png", "width": 40, "height": 20}],
        "categories": [{"id": 18, "name": "dog"}, {"id": 19, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 9, "category_id": 18, "bbox": [4, 5, 16, 10]}],
    }
    path = tmp_path / "instances_val2017.json"
    path.write_text(json.dumps(content))
    forget()
    return path


@pytest.fixture
def decodes(monkeypatch):
    """How often each JSON file is decoded."""
    counts = Counter()
    read_json = json_files.read_json

    def counting(path, *more):
        counts[path.name] += 1
        return read_json(path, *more)

    for module in (instances, json_files):
        monkeypatch.setattr(module, "read_json", counting)
    return counts


def run(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output


def test_eval_decodes_an_annotation_file_once(coco, decodes, tmp_path):
    results = [{"image_id": 9, "category_id": 18, "bbox": [4, 5, 16, 10], "score": 0.9}]
    (tmp_path / "results.json").write_text(json.dumps(results))
    run("eval", "--predictions", tmp_path / "results.json", "--gold", coco, "--task", "detection")
    assert decodes == {coco.name: 1}


def test_check_and_convert_decode_an_annotation_file_once(coco, decodes, tmp_path):
    run("data", "check", coco, "--fix", tmp_path / "clean")
    assert decodes == {coco.name: 1}
    run("data", "convert", coco, tmp_path / "out")
    run("data", "coco", coco, tmp_path, tmp_path / "built", "--categories", "dog")
    assert decodes == {coco.name: 1}


def test_training_decodes_an_annotation_file_once(coco, decodes, monkeypatch):
    pytest.importorskip("swift")
    from swift.dataset import load_dataset

    from swift_vlrft.swift_plugin import register

    monkeypatch.setattr(sys, "argv", ["swift"])
    register(datasets=[str(coco)])
    (row,) = load_dataset(str(coco))[0]
    assert "[100, 250, 500, 750]" in row["solution"] and decodes == {coco.name: 1}
