"""Runs in several turns with pictures between them: what is trained is what was sampled.

A random model calls no tool; always_zooms.py (tests/support) takes its first turns for calls.
"""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file
from support.swift_run import SUPPORT, VLLM_ON_CPU, assert_trained, grpo_command, run_swift
from transformers import AutoTokenizer

pytestmark = pytest.mark.end_to_end

PLUGINS = [SUPPORT / "cpu_engines.py", SUPPORT / "coin.py", SUPPORT / "always_zooms.py"]
TURNS = (
    *("--multi_turn_scheduler", "vlrft_zoom", "--max_turns", "3"),
    *("--reward_funcs", "vlrft_classification", "vlrft_format", "vlrft_tool_format", "coin"),
)
VLLM = (
    *("--use_vllm", "true", "--vllm_mode", "colocate", "--vllm_max_model_len", "1024"),
    *("--vllm_enforce_eager", "true", "--log_rollout_offpolicy_metrics", "true"),
    *("--vllm_limit_mm_per_prompt", '{"image": 3}'),
)


@pytest.fixture(scope="module")
def ending(tiny_qwen2_5_vl, tmp_path_factory):
    """The same model, which ends a turn after some three tokens: a random one never does. Every
    token and patch has the same share of the first feature, and the end's logit is made of that.
    """
    folder = tmp_path_factory.mktemp("ending") / "model"
    shutil.copytree(tiny_qwen2_5_vl, folder)
    weights = load_file(folder / "model.safetensors")
    end = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("<|im_end|>")
    for name, value in weights.items():
        if name.endswith("embed_tokens.weight"):  # and of what comes out: they are tied
            value[:, 0] = 0.05
            value[end] = 0
            value[end, 0] = 6.2
        elif name.endswith("merger.mlp.2.bias"):
            value[0] = 0.05
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_the_trainer_sees_the_turns_and_pictures_of_the_engine(ending, shapes, tmp_path):
    """A missing picture, another order of turns or the tool's tokens in the loss would
    show between the log-probabilities of vLLM and those of the trainer.
    """
    more = (*TURNS, *VLLM, "--learning_rate", "1e-4")
    command = grpo_command(ending, shapes, tmp_path, PLUGINS, *more)
    run = run_swift(command, tmp_path, **VLLM_ON_CPU, VLRFT_SHARED_PREFIX="1", MAX_PIXELS="12544")
    assert_trained(run, 3)
    assert min(run.metric("num_turns")) > 1
    # ms-swift compares none where the tokens that it trains are more than those that were sampled.
    assert all(abs(value) < 1e-2 for value in run.metric("rollout_correction/k3_kl"))
    assert "--multi_turn_scheduler gives rows of one prompt further images" in run.output
    lines = (tmp_path / "completions.jsonl").read_text().splitlines()
    logged = [turns for line in lines for turns in json.loads(line)["turns"] if turns]
    assert logged and all(turns[0]["crop"] is not None for turns in logged)
