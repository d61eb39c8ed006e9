"""Runs in several turns with pictures between them: what is trained is what was sampled.

A random model calls no tool: always_zooms.py (tests/support) takes its first turns for calls.
"""

import json
from pathlib import Path

import pytest
from end_to_end.rollout_server import rollout_server, served_by
from support.own import free_port
from support.raised_row import raise_row
from support.swift_run import (
    COLOCATED,
    REPOSITORY,
    SUPPORT,
    VLLM_ON_CPU,
    Run,
    assert_trained,
    run_grpo,
)

pytestmark = pytest.mark.end_to_end

ZOOMS = SUPPORT / "always_zooms.py"
TURNS = (
    *("--multi_turn_scheduler", "vlrft_zoom", "--max_turns", "3"),
    *("--reward_funcs", "vlrft_classification", "vlrft_format", "vlrft_tool_format", "coin"),
)
LIMITS = ("--vllm_max_model_len", "1024", "--vllm_limit_mm_per_prompt", '{"image": 3}')
MORE = ("--log_rollout_offpolicy_metrics", "true", "--learning_rate", "1e-4")


@pytest.fixture(scope="module")
def ending(tiny_qwen2_5_vl, tmp_path_factory):
    """The same model, which ends a turn after some three tokens: a random one never does."""
    folder = tmp_path_factory.mktemp("ending") / "model"
    return raise_row(tiny_qwen2_5_vl, folder, "<|im_end|>", 6.2)


def test_the_trainer_sees_the_turns_and_pictures_of_the_engine(ending, shapes, tmp_path):
    """A missing picture, another order of turns or the tool's tokens in the loss would
    show between the log-probabilities of vLLM and those of the trainer.
    """
    flags = (*TURNS, *COLOCATED, *LIMITS, *MORE)
    variables = VLLM_ON_CPU | {"VLRFT_SHARED_PREFIX": "1", "MAX_PIXELS": "12544"}
    run = run_grpo(ending, shapes, tmp_path, *flags, plugins=[ZOOMS], **variables)
    assert_equal_turns(run, tmp_path)
    assert "--multi_turn_scheduler gives rows of one prompt further images" in run.output


@pytest.mark.nightly
def test_turns_and_pictures_over_http(ending, shapes, tmp_path, monkeypatch):
    """The server goes through the turns, and hands text, pictures and crops on to the trainer."""
    monkeypatch.setenv("MAX_PIXELS", "12544")
    port, plugins = (
        free_port(),
        [REPOSITORY / "plugins" / "vlrft.py", SUPPORT / "cpu_engines.py", ZOOMS],
    )
    served = (*TURNS[:4], *LIMITS, "--external_plugins", *map(str, plugins))
    flags = (*TURNS, *served_by(port), "--vllm_server_pass_dataset", "true", *MORE)
    with rollout_server(ending, port, tmp_path / "server.log", *served):
        # One process under torchrun: store_communicator.py takes the place of NCCL in a rank alone.
        variables = VLLM_ON_CPU | {"VLRFT_TEST_SERVER": "1", "NPROC_PER_NODE": "1"}
        run = run_grpo(ending, shapes, tmp_path, *flags, plugins=[ZOOMS], **variables)
    assert_equal_turns(run, tmp_path)


def assert_equal_turns(run: Run, out: Path) -> None:
    assert_trained(run, 3)
    assert max(run.metric("num_turns")) > 1
    # ms-swift compares none where the tokens that it trains are more than those that were sampled.
    assert all(abs(value) < 1e-2 for value in run.metric("rollout_correction/k3_kl"))
    lines = (out / "completions.jsonl").read_text().splitlines()
    logged = [turns for line in lines for turns in json.loads(line)["turns"] if turns]
    assert logged and all(turns[0]["crop"] is not None for turns in logged)
