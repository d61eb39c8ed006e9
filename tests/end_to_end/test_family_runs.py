"""Every family through ms-swift's GRPO and `vlrft eval`.

With vLLM the recipes' runs (test_recipes.py) are a family's test; here are those without a recipe.
"""

import json
from pathlib import Path

import pytest
from end_to_end.test_model_evaluation import eval_command, run
from support.swift_run import COIN, COLOCATED, VLLM_ON_CPU, assert_trained, run_grpo
from support.tiny_kinds import MIXTURES, write_kind
from support.written_sets import write_rows

from swift_vlrft.families import FAMILIES, family_of, known_family

pytestmark = pytest.mark.end_to_end

TWO_STEPS = (*COIN, "--max_steps", "2")
KINDS = [*(name for name in FAMILIES if name != "qwen2_5_vl"), *MIXTURES]  # that: test_engines.py


@pytest.fixture(scope="session")
def sums(tmp_path_factory) -> Path:
    """A set without images."""
    turns = [{"role": "user", "content": f"What is {n} + 1?"} for n in range(16)]
    golds = [f"<answer>{n + 1}</answer>" for n in range(16)]
    rows = [{"messages": [t], "solution": gold} for t, gold in zip(turns, golds, strict=True)]
    return write_rows(tmp_path_factory.mktemp("data") / "sums.jsonl", *rows)


@pytest.fixture
def data_of(shapes, sums):
    return lambda kind: shapes if known_family(kind).images else sums


@pytest.mark.parametrize("kind", KINDS)
def test_grpo(kind, data_of, tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    write_kind(kind, model)
    assert_trained(run_grpo(model, data_of(kind), out, *TWO_STEPS), 2)
    prefix = next(iter(family_of(name=str(model)).templates.values()))  # the usual template's
    rows = [json.loads(line) for line in (out / "completions.jsonl").open()]
    assert rows and all(text.startswith(prefix) for row in rows for text in row["completion"])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["qwen3", "qwen3_5_moe", "glm4v_moe"])
def test_grpo_with_vllm(kind, data_of, tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    write_kind(kind, model)
    flags = (*COLOCATED, "--log_rollout_offpolicy_metrics", "true", "--torch_dtype", "bfloat16")
    trained = run_grpo(model, data_of(kind), out, *TWO_STEPS, *flags, **VLLM_ON_CPU)
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
