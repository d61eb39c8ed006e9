"""From `vlrft data push` to a training step, with the hub on loopback in between: the SDKs and
ms-swift's own download are the real ones.
"""

import json
import os
import subprocess
import sys

import pytest
from support.hub_server import Repo, hub_environment, running_hub
from support.swift_run import grpo_command, run_swift

from swift_vlrft.datasets.convert import convert_folder

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def hub():
    with running_hub() as running:
        yield running


@pytest.fixture
def pushed(hub, shapes, tmp_path):
    """The environment in which me/shapes is on the hub."""
    folder = tmp_path / "shapes"
    convert_folder(shapes, folder, task="classification")
    variables = hub_environment(hub.url, tmp_path)
    code = "from swift_vlrft.cli import app; app()"
    command = [sys.executable, "-c", code, "data", "push", str(folder)]
    subprocess.run(
        [*command, "--hub", "hf", "--repo", "me/shapes"],
        env={**os.environ, **variables},
        check=True,
        timeout=300,
    )
    # A public set is read without a token; with one ms-swift would log in to ModelScope first.
    return {name: value for name, value in variables.items() if "TOKEN" not in name}


def test_a_pushed_set_trains_by_its_id(hub, pushed, tiny_qwen2_5_vl, tmp_path):
    command = grpo_command(
        *(tiny_qwen2_5_vl, "hf::me/shapes", tmp_path / "out", []),
        *("--max_steps", "1"),
    )
    run = run_swift(command, tmp_path / "out", plain=True, **({"HF_HUB_OFFLINE": "0"} | pushed))
    assert len(run.steps) == 1
    assert 0 <= run.metric("rewards/vlrft_classification/mean")[0] <= 1
    assert "16 of 16 rows train (16 classification)" in run.output
    downloaded = [path for method, path, _ in hub.requests if method == "GET" and "resolve" in path]
    assert any(path.endswith("train-00000-of-00001.parquet") for path in downloaded)


LOAD = """
import json, sys
sys.argv = ["swift", "--dataset", *sys.argv[1:]]
from swift_vlrft.swift_plugin import register
register()
from swift.dataset import load_dataset
for name in sys.argv[2:]:
    # ModelScope's library forgets its own address before a stream begins, and asks elsewhere.
    for streaming in (False, True) if name.startswith("hf::") else (False,):
        dataset, _ = load_dataset([name], streaming=streaming)
        row = list(dataset)[3]
        images = [len(image["bytes"]) for image in row.get("images") or []]
        print("FOUND", json.dumps([row["messages"], images, row.get("task")]))
"""


def test_ids_are_read_as_what_they_hold(hub, pushed, rows):
    """A set of ours, one just pushed, one in ms-swift's own form, which stays its own; and the
    pushed one through ModelScope's library.
    """
    files = hub.repos["me/shapes"].files
    hub.repos["laolao77/ViRFT_COCO_base65"] = Repo(False, None, files)
    turns = [{"role": "user", "content": "4 + 4?"}, {"role": "assistant", "content": "8"}]
    line = json.dumps({"messages": turns}) + "\n"
    hub.repos["me/chat"] = Repo(False, None, {"train.jsonl": (line * 5).encode()})
    names = ["hf::laolao77/ViRFT_COCO_base65", "hf::me/shapes", "hf::me/chat", "ms::me/shapes"]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *names],
        env={**os.environ, **pushed},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(x.split(" ", 1)[1]) for x in done.stdout.splitlines() if x[:5] == "FOUND"]
    size = len(next(iter_images(files)))
    asked = [{"role": "user", "content": f"<image>{rows[3].problem}"}]
    assert found == [
        *[[asked, [size], "classification"]] * 4,
        *[[turns, [], None]] * 2,
        [asked, [size], "classification"],
    ]


def iter_images(files):
    import io

    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(files["data/train-00000-of-00001.parquet"]))
    yield table.column("image").to_pylist()[3]["bytes"]
