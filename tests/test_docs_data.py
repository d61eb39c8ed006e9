"""The data commands that docs/data.md shows, run as they stand, one after the other."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from support.hub_server import TOKEN, hub_environment, running_hub
from support.written_sets import png
from test_docs import DATA_COMMANDS, ROOT
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets.build import CATEGORY_LISTS


def commands() -> list[list[str]]:
    (block,) = re.findall(
        r"```bash\n(vlrft data coco.*?)```", (ROOT / "docs" / "data.md").read_text(), re.S
    )
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def make_sources(folder: Path) -> None:
    """COCO's archives, unpacked, and a LISA file, under the names that the page uses."""
    for name in ("train2017", "annotations", "lisa/images"):
        (folder / name).mkdir(parents=True)
    images, annotations = [], []
    for i in range(len(CATEGORY_LISTS["coco80"])):
        name = f"{i:012d}.png"
        (folder / "train2017" / name).write_bytes(png(size=(64, 48)))
        images.append({"id": i, "file_name": name, "width": 64, "height": 48})
        for k in range(8):
            annotations.append(
                {"image_id": i, "category_id": (i + k) % 80, "bbox": [k, 2, 20, 30], "iscrowd": 0}
            )
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": i, "name": name} for i, name in enumerate(CATEGORY_LISTS["coco80"])],
    }
    (folder / "annotations/instances_train2017.json").write_text(json.dumps(content))
    (folder / "lisa/images/a.png").write_bytes(png(size=(64, 48)))
    record = {"image_path": "a.png", "instruction": "what can be eaten?", "boxes": [[4, 4, 32, 24]]}
    (folder / "lisa/train.json").write_text(json.dumps([record]))


def test_they_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_sources(tmp_path)
    shown = commands()
    assert [words[2] for words in shown] == list(DATA_COMMANDS)
    for words in shown:
        if words[2] != "push":
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, done.output
            continue
        with running_hub() as hub:
            code = "from swift_vlrft.cli import app; app()"
            done = subprocess.run(
                [sys.executable, "-c", code, *words[1:]],
                env={**os.environ, **hub_environment(hub.url, tmp_path)},
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, done.stderr
            assert "--dataset hf::me/coco8" in done.stdout and TOKEN not in done.stdout
            assert hub.repos["me/coco8"].private and "README.md" in hub.repos["me/coco8"].files
    made = [row for f in Path("data/coco8/data").iterdir() for row in pq.read_table(f).to_pylist()]
    assert len(made) == 35 and {row["category"] for row in made} == set(
        CATEGORY_LISTS["virft-coco8"]
    )
    assert sum("No Objects" in row["solution"] for row in made) == 3
    (lisa,) = pq.read_table(next(Path("data/lisa/data").iterdir())).to_pylist()
    assert lisa["task"] == "grounding" and lisa["image"]["path"] == "a.png"
    assert Path("page.html").read_text().count("<article>") == 12


def test_the_list_names_every_set_and_where_it_is():
    done = CliRunner().invoke(app, ["data", "list", "--json"])
    listed = json.loads(done.stdout)
    assert len(listed) >= 9 and all(entry["about"] and entry["hubs"] for entry in listed)
    by_id = {entry["hub_id"]: entry for entry in listed}
    assert by_id["laolao77/ViRFT_COCO_base65"]["frame"] == "norm1000"
    assert by_id["laolao77/ViRFT_CLS_pets37_4shot"]["task"] == "classification"
    table = CliRunner().invoke(app, ["data", "list"], env={"COLUMNS": "200"}).stdout
    assert all(name in table for name in by_id)
