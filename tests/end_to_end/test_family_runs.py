"""GRPO of families beside Qwen2.5-VL, a tiny model each: two steps with answers that transformers
writes. Their recipes run with vLLM's (test_recipes.py).
"""

import pytest
from support.swift_run import SUPPORT, assert_trained, grpo_command, run_swift

from swift_vlrft.families import FAMILIES
from swift_vlrft.files.completions import read_completions
from swift_vlrft.tiny.checkpoint import write_tiny

pytestmark = pytest.mark.end_to_end

SHORT = ("--reward_funcs", "vlrft_classification", "vlrft_format", "coin", "--max_steps", "2")


@pytest.mark.parametrize("name", ["minicpmv4_6", "gemma4"])
def test_two_steps(name, shapes, tmp_path):
    model = tmp_path / name
    write_tiny(name, model)
    command = grpo_command(model, shapes, tmp_path / "out", [SUPPORT / "coin.py"], *SHORT)
    assert_trained(run_swift(command, tmp_path / "out"), 2)
    prefix = next(iter(FAMILIES[name].templates.values()))
    found = list(read_completions(tmp_path / "out" / "completions.jsonl", []))
    assert found and all(one.row["completion"].startswith(prefix) for one in found)
