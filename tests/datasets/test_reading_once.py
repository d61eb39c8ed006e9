"""A file of annotations is decoded once, however often the set is asked for."""

import json
from collections import Counter

import pytest
from support.stored_sets import command
from test_published_sets import write

from swift_vlrft.datasets import instances, json_files
from swift_vlrft.datasets.instances import forget


@pytest.fixture
def coco(tmp_path):
    forget()
    return write(tmp_path, {"form": "coco"})


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


def test_commands_decode_an_annotation_file_once(coco, decodes, tmp_path):
    results = [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 10, 10], "score": 0.9}]
    (tmp_path / "results.json").write_text(json.dumps(results))
    eval = ["eval", "--predictions", tmp_path / "results.json", "--gold", coco]
    for again, words in (
        (True, [*eval, "--task", "detection"]),
        (True, ["data", "check", coco]),
        (False, ["data", "convert", coco, tmp_path / "out"]),
        (False, ["data", "coco", coco, tmp_path, tmp_path / "built", "--categories", "dog"]),
    ):
        if again:
            forget()
            decodes.clear()
        assert command(*words)[0] == 0
        assert decodes == {coco.name: 1}
