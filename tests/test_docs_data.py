"""The data commands that docs/reference/data.md shows, run as they stand, one after the other."""

import json
import shlex
from pathlib import Path

import pyarrow.parquet as pq
from support.command_line import vlrft
from support.written_sets import png, rows_in
from test_docs import ROOT, commands

from swift_vlrft.datasets.build import CATEGORY_LISTS

NAMES = CATEGORY_LISTS["coco80"]


def make_sources(folder: Path) -> None:
    """COCO's archives, unpacked, and a LISA file, under the names that the page uses."""
    for name in ("train2017", "annotations", "lisa/images"):
        (folder / name).mkdir(parents=True)
    for i in range(len(NAMES)):
        (folder / f"train2017/{i:012d}.png").write_bytes(png(size=(64, 48)))
    size = {"width": 64, "height": 48}
    content = {
        "images": [{"id": i, "file_name": f"{i:012d}.png", **size} for i in range(len(NAMES))],
        "annotations": [
            {"image_id": i, "category_id": (i + k) % 80, "bbox": [k, 2, 20, 30], "iscrowd": 0}
            for i in range(len(NAMES))
            for k in range(8)
        ],
        "categories": [{"id": i, "name": name} for i, name in enumerate(NAMES)],
    }
    (folder / "annotations/instances_train2017.json").write_text(json.dumps(content))
    (folder / "lisa/images/a.png").write_bytes(png(size=(64, 48)))
    record = {"image_path": "a.png", "instruction": "what can be eaten?", "boxes": [[4, 4, 32, 24]]}
    (folder / "lisa/train.json").write_text(json.dumps([record]))


def test_they_run_as_they_stand(tmp_path, monkeypatch):
    """But for `push`: hub/test_data_push.py."""
    monkeypatch.chdir(tmp_path)
    make_sources(tmp_path)
    lines = commands(ROOT / "docs" / "reference" / "data.md", "vlrft data ")
    shown = [shlex.split(line)[1:] for line in lines if "my_set" not in line]
    assert [words[1] for words in shown] == ["coco", "coco", "convert", "show", "push", "list"]
    for words in shown:
        if words[1] != "push":
            done = vlrft(*words)
            assert done.exit_code == 0, done.output
    mine = {split: rows_in(Path("data/mine"), split) for split in ("train", "test")}
    assert [len(rows) for rows in mine.values()] == [72, 8]
    assert all("in the image: person, bicycle, " in row["problem"] for row in mine["test"])
    rows = pq.read_table("data/coco8/data").to_pylist()
    assert len(rows) == 35 and sum("No Objects" in row["solution"] for row in rows) == 3
    assert {row["category"] for row in rows} == set(CATEGORY_LISTS["virft-coco8"])
    (row,) = pq.read_table("data/lisa/data").to_pylist()
    assert row["task"] == "grounding" and row["image"]["path"] == "a.png"
    assert Path("page.html").read_text().count("<article>") == 12


def test_the_list_names_every_set_and_where_it_is():
    listed = json.loads(vlrft("data", "list", "--json").stdout)
    assert len(listed) >= 9 and all(entry["about"] and entry["hubs"] for entry in listed)
    by_id = {entry["hub_id"]: entry for entry in listed}
    assert by_id["laolao77/ViRFT_COCO_base65"]["frame"] == "norm1000"
    assert by_id["laolao77/ViRFT_CLS_pets37_4shot"]["task"] == "classification"
