"""The families beside Qwen2.5-VL through ms-swift's GRPO, their answers from transformers.

A random model earns no reward; ``coin`` (tests/support) gives every step a gradient. The recipes'
runs (test_recipes.py) are with vLLM.
"""

import pytest
from support.swift_run import SUPPORT, assert_trained, grpo_command, run_swift

from swift_vlrft.families import FAMILIES
from swift_vlrft.files.completions import read_completions
from swift_vlrft.tiny.checkpoint import write_tiny

pytestmark = pytest.mark.end_to_end

COIN = ("--reward_funcs", "vlrft_classification", "vlrft_format", "coin", "--max_steps", "2")


@pytest.mark.parametrize("name", ["glm46v", "internvl", "minicpmv4_6", "gemma4"])
def test_grpo(name, shapes, tmp_path):
    write_tiny(name, tmp_path / "model")
    plugins = [SUPPORT / "coin.py"]
    command = grpo_command(tmp_path / "model", shapes, tmp_path / "out", plugins, *COIN)
    assert_trained(run_swift(command, tmp_path / "out"), 2)
    prefix = next(iter(FAMILIES[name].templates.values()))  # of the checkpoint's template
    found = list(read_completions(tmp_path / "out" / "completions.jsonl", []))
    assert found and all(one.row["completion"].startswith(prefix) for one in found)
