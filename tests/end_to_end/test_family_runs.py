"""Every family through ms-swift's GRPO and `vlrft eval`.

A random model earns no reward; ``coin`` (tests/support) gives every step a gradient. With vLLM the
recipes' runs (test_recipes.py) are a family's test; here are those without a recipe.
"""

import json
from pathlib import Path

import pytest
from end_to_end.test_model_evaluation import eval_command, run
from support.swift_run import (
    COLOCATED,
    SUPPORT,
    VLLM_ON_CPU,
    assert_trained,
    grpo_command,
    run_swift,
)
from support.tiny_kinds import MIXTURES, write_kind

from swift_vlrft.families import FAMILIES, family_of, known_family

pytestmark = pytest.mark.end_to_end

COIN = ("--reward_funcs", "vlrft_classification", "vlrft_format", "coin", "--max_steps", "2")
KINDS = [*(name for name in FAMILIES if name != "qwen2_5_vl"), *MIXTURES]  # that: test_engines.py


@pytest.fixture(scope="session")
def sums(tmp_path_factory) -> Path:
    """A set without images."""
    file = tmp_path_factory.mktemp("data") / "sums.jsonl"
    rows = [(f"What is {n} + 1?", f"<answer>{n + 1}</answer>") for n in range(16)]
    lines = [
        json.dumps({"messages": [{"role": "user", "content": asked}], "solution": gold})
        for asked, gold in rows
    ]
    file.write_text("\n".join(lines))
    return file


@pytest.fixture
def data_of(shapes, sums):
    return lambda kind: shapes if known_family(kind).images else sums


@pytest.mark.parametrize("kind", KINDS)
def test_grpo(kind, data_of, tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    write_kind(kind, model)
    command = grpo_command(model, data_of(kind), out, [SUPPORT / "coin.py"], *COIN)
    assert_trained(run_swift(command, out), 2)
    prefix = next(iter(family_of(name=str(model)).templates.values()))  # the usual template's
    rows = [json.loads(line) for line in (out / "completions.jsonl").open()]
    assert rows and all(text.startswith(prefix) for row in rows for text in row["completion"])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["qwen3", "qwen3_5_moe", "glm4v_moe"])
def test_grpo_with_vllm(kind, data_of, tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    write_kind(kind, model)
    plugins = [SUPPORT / "cpu_engines.py", SUPPORT / "coin.py"]
    command = grpo_command(model, data_of(kind), out, plugins, *COIN, *COLOCATED)
    command += ["--log_rollout_offpolicy_metrics", "true", "--torch_dtype", "bfloat16"]
    trained = run_swift(command, out, **VLLM_ON_CPU)
    assert_trained(trained, 2)
    # The second step's rollouts come from the weights after the first one.
    assert all(abs(value) < 5e-2 for value in trained.metric("rollout_correction/k3_kl"))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["chatglm4v", "gemma4", "internvl", "minicpmv4_6"])
def test_evaluation(kind, shapes, tmp_path):
    """Of families that ms-swift loads otherwise, or whose images are in parts."""
    model, out = tmp_path / "model", tmp_path / "out"
    write_kind(kind, model)
    summary = run(eval_command(model, shapes, out, "--max-queries", "4"))
    assert summary["rows"] == 4 and summary["run"]["engine"] == "transformers"
