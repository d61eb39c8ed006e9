"""From `vlrft data push` to a training step, with the hub on loopback in between: the SDKs and
ms-swift's own download are the real ones.
"""

import io
import json
import re
import shlex
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hub_server import Repo, hub_environment, running_hub
from support.stored_sets import picture as one_picture
from support.swift_run import REPOSITORY, VLRFT, run_command, run_swift

from swift_vlrft.datasets.convert import convert_folder

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]


@pytest.fixture(scope="module")
def hub(shapes, tmp_path_factory):
    """A hub that has me/shapes."""
    folder = tmp_path_factory.mktemp("hub")
    convert_folder(shapes, folder / "shapes", task="classification")
    command = [VLRFT, "data", "push", folder / "shapes", "--hub", "hf", "--repo", "me/shapes"]
    with running_hub() as running:
        done = run_command(command, plain=True, **hub_environment(running.url, folder))
        assert done.returncode == 0, done.stdout[-3000:]
        yield running


@pytest.fixture
def pushed(hub, tmp_path):
    """The environment in which me/shapes is on the hub."""
    variables = hub_environment(hub.url, tmp_path)
    # A public set is read without a token; with one ms-swift would log in to ModelScope first.
    return {name: value for name, value in variables.items() if "TOKEN" not in name}


def test_a_pushed_set_trains_by_its_id_with_its_cards_command(
    hub, pushed, tiny_qwen2_5_vl, tmp_path
):
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
    run = run_swift(words, tmp_path / "out", plain=True, **pushed)
    assert len(run.steps) == 1 and "16 of 16 rows train (16 classification)" in run.output
    assert 0 <= run.metric("rewards/vlrft_classification/mean")[0] <= 1
    downloaded = [path for method, path, _ in hub.requests if method == "GET" and "resolve" in path]
    assert any(path.endswith("train-00000-of-00001.parquet") for path in downloaded)


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
    done = run_command([sys.executable, "-c", LOAD, *names], plain=True, **variables)
    assert done.returncode == 0, done.stdout[-3000:]
    return [json.loads(x.split(" ", 1)[1]) for x in done.stdout.splitlines() if x[:5] == "FOUND"]


def texts() -> dict[str, bytes]:
    """A set whose subset ocr holds lists, and whose subset default holds texts: the task ocr."""
    card, files = "---\nconfigs:\n", {}
    for config, task in (("ocr", "list"), ("default", "ocr")):
        path = f"{config}/train-0.parquet"
        card += f"- config_name: {config}\n  data_files: [{{split: train, path: {path}}}]\n"
        picture = {"bytes": one_picture(size=(40, 20)), "path": None}
        record = {"image": picture, "problem": "ocr?", "solution": "Exit", "task": task}
        pq.write_table(pa.Table.from_pylist([record] * 4), file := io.BytesIO())
        files[path] = file.getvalue()
    return {"README.md": f"{card}---\n".encode()} | files


def test_ids_are_read_as_what_they_hold(hub, pushed, rows):
    """A set of ours, one just pushed, one in ms-swift's own form, which stays its own; the pushed
    one through ModelScope's library; a task after the colon. A name of a task and of a hub's
    subset is refused: the subset's own files are given by their folder.
    """
    files = hub.repos["me/shapes"].files
    hub.repos["laolao77/ViRFT_COCO_base65"] = Repo(False, None, files)
    hub.repos["me/texts"] = Repo(False, None, texts())
    turns = [{"role": "user", "content": "4 + 4?"}, {"role": "assistant", "content": "8"}]
    line = json.dumps({"messages": turns}) + "\n"
    hub.repos["me/chat"] = Repo(False, None, {"train.jsonl": (line * 5).encode()})
    names = ["hf::laolao77/ViRFT_COCO_base65", "hf::me/shapes", "hf::me/chat", "ms::me/shapes"]
    found = loaded(pushed, *names)
    table = pq.read_table(io.BytesIO(files["data/train-00000-of-00001.parquet"]))
    size = len(table.column("image").to_pylist()[3]["bytes"])
    asked = [{"role": "user", "content": f"<image>{rows[3].problem}"}]
    ours = [asked, [size], "classification"]
    assert found == [ours, ours, [turns, [], None], ours]
    names = ["hf::me/shapes:classification", "hf::me/texts:default/ocr"]
    assert [task for _, _, task in loaded(pushed, *names)] == ["classification", "ocr"]
    with pytest.raises(AssertionError, match="me/texts:default/ocr for the rows of the task"):
        loaded(pushed, "hf::me/texts:ocr")
