"""`--dataset SET:TASK#COUNT`: only the rows that are asked for count, and every command says what
cannot be asked for.
"""

import json
import random
import re
import shlex
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import vlrft
from support.drawn_rows import MIXED, mixed_rows
from support.plugin_run import PLUGIN

import swift_vlrft
from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.training import LoadOptions, training_set
from tests.support.parquet import write_parquet

pytestmark = pytest.mark.slow  # ms-swift is imported

BROKEN = {"bytes": b"no image", "path": None}
CHANGES = {
    "good": {},
    "gold": {"solution": "rubbish"},
    "image": {"image": BROKEN},
    "prompt": {"problem": ""},
    "users": {"task": "caption/short 图"},
    "typo": {"task": "Grounding "},
}


def written(folder: Path, **changes) -> Path:
    """A set of all tasks whose rows of grounding are changed."""
    write_parquet(mixed_rows(random.Random(0), 2 * len(MIXED)), folder)
    (file,) = folder.rglob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    rows = [row | changes if row["task"] == "grounding" else row for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), file)
    return folder


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    folders = {"colon": written(root / "a:b"), "sharp": written(root / "c#d")}
    return folders | {name: written(root / name, **change) for name, change in CHANGES.items()}


ASKED = list(map(json.loads, Path(__file__).with_name("asked.jsonl").open(encoding="utf-8")))


@pytest.mark.parametrize("case", ASKED, ids=lambda case: f"{case['set']}:{case['asked']}")
def test_what_is_asked_of_a_set(sets, case):
    """By the plugin before a model is loaded, and by `vlrft check`."""
    dataset, said = f"{sets[case['set']]}:{case['asked']}", case["said"]
    with pytest.raises(DataError, match=f"(?s){said}") if said else nullcontext():
        swift_vlrft.register([dataset])
    words = ["swift", "rlhf", "--rlhf_type", "grpo", "--model", "Qwen/Qwen2.5-VL-3B-Instruct"]
    words += ["--reward_funcs", "vlrft_format", "--external_plugins", str(PLUGIN)]
    found = json.loads(vlrft("check", shlex.join([*words, "--dataset", dataset]), "--json").stdout)
    texts = [one["text"] for one in found["findings"] if one["level"] == "problem"]
    texts = [text for text in texts if str(sets[case["set"]].parent) in text]
    assert any(re.search(f"(?s){said}", text) for text in texts) if said else not texts, texts


@pytest.mark.parametrize("dataset", ["colon", "sharp"])
def test_signs_in_a_path_are_no_subset(sets, dataset):
    swift_vlrft.register([sets[dataset], f"{sets[dataset]}#3"])
    assert vlrft("data", "check", sets[dataset]).exit_code == 0


@pytest.mark.parametrize("name", ["gold", "image", "prompt", "users"])
def test_rows_that_are_not_asked_for_stop_nothing(sets, tmp_path, name):
    options = LoadOptions(rewards=("vlrft_ocr",), tasks=("ocr",), strict=True)
    stored = open_set(sets[name])
    table, report = training_set(stored, options)
    assert table["task"][:] == ["ocr"] * 2 and report.rows == 2
    others = {task: 2 for task in MIXED if task not in ("ocr", "grounding")}
    assert report.other_tasks == others | {CHANGES[name].get("task", "grounding"): 2}


def test_the_name_of_a_set_is_printed_as_it_is(tmp_path):
    """Not as a picture: to a terminal's library ":b:" is one."""
    said = vlrft("data", "check", tmp_path / "a:b:ok:c").output
    assert "a:b:ok:c" in said
