"""The same tiny Qwen2.5-VL through ms-swift's GRPO with every engine that a CPU can run; vLLM in
the trainer's process: test_exact_resume.py.
"""

import math

import pytest
from end_to_end.rollout_server import rollout_server, served_by
from support.own import free_port
from support.swift_run import (
    COIN,
    DEEPSPEED_ON_CPU,
    REPOSITORY,
    SUPPORT,
    VLLM_ON_CPU,
    assert_trained,
    run_grpo,
)

pytestmark = pytest.mark.end_to_end

ZERO3 = (
    *("--deepspeed", "zero3", "--offload_model", "true", "--offload_optimizer", "true"),
    *("--gradient_checkpointing", "true", "--vit_gradient_checkpointing", "true"),
    *("--torch_dtype", "bfloat16"),
)
ZERO3_VARIABLES = DEEPSPEED_ON_CPU | {"NPROC_PER_NODE": "2"}


def test_transformers_rollout(writing_images, shapes, tmp_path):
    """And it evaluates while it trains."""
    evaluated = ("--val_dataset", f"{shapes}#4", "--eval_strategy", "steps", "--eval_steps", "3")
    flags = (*COIN, *evaluated, "--per_device_eval_batch_size", "4")
    run = run_grpo(writing_images, shapes, tmp_path, *flags)
    assert_trained(run, 3)
    assert run.metric("completions/vision_token_ratio") == [0, 0, 0]
    assert any("eval_rewards/vlrft_format/mean" in row for row in run.rows)


@pytest.mark.nightly
@pytest.mark.parametrize("has_plugin", [True, False])
def test_a_server_that_writes_images_ends_no_run(has_plugin, writing_images, shapes, tmp_path):
    """With our plugin `swift rollout` samples none; without it, those answers are left out."""
    port, plugins = free_port(), [str(SUPPORT / "cpu_engines.py")]
    served = ("--external_plugins", *[str(REPOSITORY / "plugins/vlrft.py")] * has_plugin, *plugins)
    # One process under torchrun: store_communicator.py takes the place of NCCL in a rank alone.
    variables = VLLM_ON_CPU | {"VLRFT_TEST_SERVER": "1", "NPROC_PER_NODE": "1"}
    with rollout_server(writing_images, port, tmp_path / "server.log", *served):
        variables |= {"VLRFT_SHARED_PREFIX": str(int(has_plugin))}
        flags = (*COIN, *served_by(port))
        run = run_grpo(writing_images, shapes, tmp_path, *flags, **variables)
    ratios, norms = run.metric("completions/vision_token_ratio"), run.metric("grad_norm")
    assert len(norms) == 3 and any(ratios) != has_plugin
    # A step whose answers are all left out changes no weight.
    for ratio, norm in zip(ratios, norms, strict=True):
        assert math.isfinite(norm) and (0 < ratio < 1 or (norm > 0) == (ratio == 0))


def test_zero3_with_offload_on_two_processes(tiny_qwen2_5_vl, shapes, tmp_path):
    variables = ZERO3_VARIABLES | {"VLRFT_TRACK_MEMORY": "1"}
    run = run_grpo(tiny_qwen2_5_vl, shapes, tmp_path, *COIN, *ZERO3, **variables)
    assert_trained(run, 3)
    # Every phase of the wrapped model is seen; DeepSpeed's step is part of its backward pass.
    phases = ("generation", "rest", "log_probabilities", "forward", "backward")
    for phase in phases:
        assert all(value > 0.01 for value in run.metric(f"memory/{phase}_rss_gib"))
    # Together they are the step that ms-swift times itself, but for what is between them.
    timed = [run.metric(f"memory/{phase}_seconds") for phase in phases]
    for step, parts in zip(run.metric("step_time"), zip(*timed, strict=True), strict=True):
        assert min(parts) > 0 and step / 2 < sum(parts) < step * 2
