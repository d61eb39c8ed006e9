"""The families beside Qwen2.5-VL through ms-swift's GRPO, their answers from transformers.

A random model earns no reward; ``coin`` (tests/support) gives every step a gradient. The recipes'
runs (test_recipes.py) are with vLLM.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.swift_run import SUPPORT, assert_trained, grpo_command, run_swift

from swift_vlrft.families import FAMILIES, family_of
from swift_vlrft.families.family import TinySize
from swift_vlrft.tiny.checkpoint import build_model, build_tokenizer, save_checkpoint, write_tiny

pytestmark = pytest.mark.end_to_end

COIN = ("--reward_funcs", "vlrft_classification", "vlrft_format", "coin", "--max_steps", "2")


def write_moe(folder: Path) -> None:
    """A tiny Qwen3-VL as 30B-A3B is one, recognised by its config.json alone."""
    dense = FAMILIES["qwen3_vl"].tiny

    def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
        values = dense.config(size, vocabulary)
        experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
        return values | {
            "model_type": "qwen3_vl_moe",
            "text_config": values["text_config"] | experts,
        }

    tiny = replace(dense, config=config, processor_type="qwen3_vl")
    save_checkpoint(build_model(tiny), build_tokenizer(tiny), tiny, "qwen3_vl", folder)
    (folder / "args.json").unlink()


@pytest.mark.parametrize(
    "name", ["glm46v", "internvl", "qwen3_5", "qwen3_vl_moe", "minicpmv4_6", "gemma4"]
)
def test_grpo(name, shapes, tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    if name == "qwen3_vl_moe":
        write_moe(model)
    else:
        write_tiny(name, model)
    run = run_swift(grpo_command(model, shapes, out, [SUPPORT / "coin.py"], *COIN), out)
    assert_trained(run, 2)
    prefix = next(iter(family_of(name=str(model)).templates.values()))  # the usual template's
    rows = [json.loads(line) for line in (out / "completions.jsonl").open()]
    assert rows and all(text.startswith(prefix) for row in rows for text in row["completion"])
