"""From `vlrft data push` to a training step, with the hub on loopback in between: the SDKs and
ms-swift's own download are the real ones.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hub_server import Repo, hub_environment, running_hub
from support.stored_sets import picture as one_picture
from support.swift_run import REPOSITORY, grpo_command, run_swift

from swift_vlrft.datasets.convert import convert_folder

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]


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
        timeout=1800,
    )
    return without_token(variables)


def without_token(variables):
    """A public set is read without; with one ms-swift would log in to ModelScope first."""
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


def test_the_cards_command_trains(hub, pushed, tiny_qwen2_5_vl, tmp_path):
    """As it stands but for what a CPU lacks, and a tiny model."""
    card = hub.repos["me/shapes"].files["README.md"].decode()
    block = next(b for b in re.findall(r"```bash\n(.*?)```", card, re.S) if "swift rlhf" in b)
    plugin = str(REPOSITORY / "plugins" / "vlrft.py")
    command = block.split("\n", 1)[1].replace("\\\n", " ").replace("$(vlrft plugin)", plugin)
    words = shlex.split(command)
    offloads = ("--sleep_level", "--offload_model", "--offload_optimizer")
    for flag in ("--deepspeed", "--vllm_mode", *offloads):
        at = words.index(flag)
        del words[at : at + 2]
    on_cpu = ["--use_vllm", "false", "--torch_dtype", "float32", "--use_cpu", "true"]
    small = ["--model", str(tiny_qwen2_5_vl), "--max_steps", "1", "--max_completion_length", "8"]
    words += [*on_cpu, *small, "--add_version", "false", "--output_dir", str(tmp_path / "out")]
    words += ["--logging_steps", "1", "--report_to", "none", "--save_strategy", "no"]
    run = run_swift(words, tmp_path / "out", plain=True, **({"HF_HUB_OFFLINE": "0"} | pushed))
    assert len(run.steps) == 1 and "16 of 16 rows train (16 classification)" in run.output


LOAD = """
import json, sys
sys.argv = ["swift", "--dataset", *sys.argv[1:]]
from swift_vlrft import register
register()
from swift.dataset import load_dataset
for name in sys.argv[2:]:
    dataset, _ = load_dataset([name])
    row = list(dataset)[3]
    images = [len(image["bytes"] or b"") for image in row.get("images") or []]
    print("FOUND", json.dumps([row["messages"], images, row.get("task")]))
"""


def loaded(variables, *names):
    """Messages, sizes of images and task of a row of each id, as ms-swift loads it."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *names],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(x.split(" ", 1)[1]) for x in done.stdout.splitlines() if x[:5] == "FOUND"]


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
    found = loaded(pushed, *names)
    table = pq.read_table(io.BytesIO(files["data/train-00000-of-00001.parquet"]))
    size = len(table.column("image").to_pylist()[3]["bytes"])
    asked = [{"role": "user", "content": f"<image>{rows[3].problem}"}]
    assert found == [
        *[[asked, [size], "classification"]] * 4,
        *[[turns, [], None]] * 2,
        [asked, [size], "classification"],
    ]


CARD = """---
configs:
- config_name: DocVQA
  data_files: [{split: validation, path: DocVQA/validation-*}]
- config_name: InfographicVQA
  data_files: [{split: validation, path: InfographicVQA/validation-*}]
---
"""


def as_parquet(record):
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([record] * 4), file)
    return file.getvalue()


def test_ids_of_published_sets_are_read_from_their_subset_and_split(hub, tmp_path):
    """Sets that have no train split, or several subsets, under the ids that are known."""
    picture = {"bytes": one_picture(size=(400, 200)), "path": None}
    click = {"image": picture, "instruction": "close it", "bbox": [0.25, 0.5, 0.75, 1.0]}
    asked = {"image": picture, "questionId": "9", "question": "who?", "answers": ["ITC", "itc"]}
    count = {"image": picture, "text": "six", "question": "How many owls?", "number": 6}
    other = as_parquet(asked | {"question": "of the other subset?"})
    files = {
        "README.md": CARD.encode(),
        "DocVQA/validation-00000-of-00001.parquet": as_parquet(asked),
    }
    files["InfographicVQA/validation-00000-of-00001.parquet"] = other
    of_test = "data/test-00000-of-00001.parquet"
    hub.repos["lmms-lab/DocVQA"] = Repo(False, None, files)
    hub.repos["rootsautomation/ScreenSpot"] = Repo(False, None, {of_test: as_parquet(click)})
    hub.repos["vikhyatk/CountBenchQA"] = Repo(False, None, {of_test: as_parquet(count)})
    names = ["hf::lmms-lab/DocVQA", "hf::rootsautomation/ScreenSpot", "hf::vikhyatk/CountBenchQA"]
    found = loaded(without_token(hub_environment(hub.url, tmp_path)), *names)
    asked_for = ["who?", "who?", "close it", "close it", "How many owls?", "How many owls?"]
    for (turns, _, _), question in zip(found, asked_for, strict=True):
        assert question in turns[0]["content"]
    assert [task for _, _, task in found] == ["ocr"] * 2 + ["pointing"] * 2 + ["counting"] * 2


OWN_CARD = """---
configs:
- config_name: ocr
  data_files: [{split: train, path: ocr/train-*}]
- config_name: list
  data_files: [{split: train, path: list/train-*}]
---
"""


def test_a_task_may_be_the_name_of_a_hubs_subset(hub, pushed, rows):
    """Rows of a task where the id has them; else the subset, in our form or in ms-swift's."""
    picture = {"bytes": one_picture(size=(40, 20)), "path": None}
    for name, record in {
        "me/texts": {"image": picture, "problem": "ocr?", "solution": "Exit", "task": "ocr"},
        "me/chats": {"messages": [{"role": "user", "content": "ocr?"}]},
    }.items():
        other = record | {"task": "other"}
        files = {
            "ocr/train-0.parquet": as_parquet(record),
            "list/train-0.parquet": as_parquet(other),
        }
        hub.repos[name] = Repo(False, None, {"README.md": OWN_CARD.encode()} | files)
    names = ["hf::me/shapes:classification", "hf::me/texts:ocr", "hf::me/chats:ocr"]
    found = loaded(pushed, *names)
    assert [task for _, _, task in found] == ["classification"] * 2 + ["ocr"] * 2 + [None] * 2
    assert all("ocr?" in turns[0]["content"] for turns, _, _ in found[2:])
