"""The plugin in ms-swift's registries, and what it says before a model is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.tasks import known_task
from swift_vlrft.rewards import REWARDS
from swift_vlrft.swift_plugin.command_line import read_command_line

PLUGIN = Path(__file__).resolve().parents[1] / "plugins" / "vlrft.py"


def import_plugin(*flags: str, then: str = "") -> subprocess.CompletedProcess:
    """Import the plugin as `swift rlhf FLAGS` does, twice, then run ``then``."""
    code = (
        "from swift.utils import import_external_file\n"
        f"import_external_file({str(PLUGIN)!r})\n"
        "from swift_vlrft.swift_plugin import register\n"
        f"register()\n{then}"
    )
    command = [sys.executable, "-c", code, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory) -> Path:
    import random

    folder = tmp_path_factory.mktemp("shapes") / "of any name"
    write_parquet(known_task("detection").make(random.Random(0), 4), folder)
    return folder


def test_registering_twice_makes_rewards_and_sets_known(shapes):
    then = """
from swift.dataset import load_dataset
from swift.dataset.dataset_syntax import DatasetSyntax
from swift.rewards import orms
import json, sys
path = sys.argv[2]
rows = load_dataset([path])[0]
hub = DatasetSyntax.parse("laolao77/ViRFT_COCO_base65")
loaders = [hub.get_dataset_meta(hf).loader.__name__ for hf in (True, False)]
names = [orms[n](args=None).__name__ for n in json.loads(sys.argv[-1])]
print(json.dumps([names, loaders, rows.column_names, rows[0]["task"], len(rows)]))
"""
    import json

    done = import_plugin(
        "--dataset", str(shapes), "--seed", "1", "--x", json.dumps(list(REWARDS)), then=then
    )
    assert done.returncode == 0, done.stderr[-3000:]
    names, loaders, columns, task, rows = json.loads(done.stdout.strip().splitlines()[-1])
    assert names == list(REWARDS)
    assert loaders == ["VlrftLoader", "VlrftLoader"]
    assert {"messages", "images", "solution", "task", "frame"} <= set(columns)
    assert (task, rows) == ("detection", 4)


def test_an_unknown_reward_name_is_refused_with_the_known_ones():
    done = import_plugin("--reward_funcs", "vlrft_detection_iuo")
    assert done.returncode == 1
    assert "swift-vlrft: --reward_funcs vlrft_detection_iuo: no reward has this name" in done.stderr
    assert "Did you mean vlrft_detection_iou?" in done.stderr
    assert "Traceback" not in done.stderr and "vlrft_classification" in done.stderr


def test_a_name_that_a_later_plugin_may_bring_is_left_alone():
    flags = ("--reward_funcs", "mine", "--external_plugins", str(PLUGIN), "mine.py")
    assert import_plugin(*flags).returncode == 0
    assert import_plugin("--reward_funcs", "mine").returncode == 1


def test_a_path_that_does_not_exist_is_refused(tmp_path):
    done = import_plugin("--dataset", str(tmp_path / "nowhere"))
    assert done.returncode == 1 and "nowhere does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_gold_solution_is_refused_by_file_and_row(tmp_path):
    import random
    from dataclasses import replace

    rows = known_task("detection").make(random.Random(0), 3)
    write_parquet([*rows, replace(rows[0], solution="a dog")], tmp_path / "set")
    done = import_plugin("--dataset", f"{tmp_path / 'set'}#2")
    assert done.returncode == 1
    assert "train-00000-of-00001.parquet, row 3: the solution 'a dog' cannot be read" in done.stderr


def test_the_command_line_is_read_as_ms_swift_reads_it():
    flags = '--dataset a b#3 --reward_funcs x --dataset c --columns {"q":"problem"} --lr=1'
    found = read_command_line(flags.split())
    assert (found.datasets, found.reward_funcs) == (["c"], ["x"])
    assert found.columns == {"q": "problem"}


def test_the_trainer_of_shared_prefixes_is_chosen_by_its_variable(monkeypatch):
    then = (
        "from types import SimpleNamespace\n"
        "from swift.trainers.trainer_factory import TrainerFactory\n"
        "chosen = TrainerFactory.get_trainer_cls(SimpleNamespace(rlhf_type='grpo'))\n"
        "print(chosen.__name__, chosen.__mro__[1].__name__)"
    )
    monkeypatch.setenv("VLRFT_SHARED_PREFIX", "1")
    done = import_plugin(then=then)
    assert done.stdout.splitlines()[-1] == "SharedPrefixGRPOTrainer GRPOTrainer", done.stderr
    monkeypatch.setenv("VLRFT_SHARED_PREFIX", "0")
    done = import_plugin(then=then)
    assert done.stdout.splitlines()[-1].startswith("GRPOTrainer "), done.stderr
    monkeypatch.setenv("VLRFT_SHARED_PREFIX", "maybe")
    assert "VLRFT_SHARED_PREFIX=maybe: neither on nor off" in import_plugin().stderr
