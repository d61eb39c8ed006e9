"""VLRFT_SHARED_PREFIX=1 in real `swift rlhf` runs: the same numbers, with every engine."""

import re
from pathlib import Path

import pytest
from end_to_end.test_engines import ZERO3, ZERO3_VARIABLES
from support.nightly import first_now
from support.raised_row import raise_row
from support.swift_run import (
    COIN,
    COLOCATED,
    SUPPORT,
    VLLM_ON_CPU,
    Run,
    assert_trained,
    run_grpo,
)

from swift_vlrft.shared_prefix.images import CannotPack
from swift_vlrft.swift_plugin.shared_prefixes import _pack
from swift_vlrft.tiny.checkpoint import write_tiny

pytestmark = pytest.mark.end_to_end

ON = {"VLRFT_SHARED_PREFIX": "1"}
SAYS = "swift_vlrft: VLRFT_SHARED_PREFIX: "


def updates(run: Run, name: str) -> list[float]:
    """A metric of every update, also of those that reuse the completions of the one before."""
    return [row[name] for row in run.rows if "grad_norm" in row]


def with_and_without(model: Path, data: Path, folder: Path, *flags: str, **more) -> list[Run]:
    """A run as ms-swift computes it, and the same with shared prefixes."""
    stock = run_grpo(model, data, folder / "stock", *flags, **more)
    return [stock, run_grpo(model, data, folder / "shared", *flags, **more, **ON)]


@pytest.mark.parametrize("family", first_now("qwen2_5_vl", "qwen3_5", "internvl"))
def test_a_run_with_and_without_is_the_same_run(family, shapes, tmp_path):
    model, plugins = tmp_path / family, []
    write_tiny(family, model)
    if writes_images := family == "qwen2_5_vl":  # in some answers, as from an engine that may
        raise_row(model, model, "<|image_pad|>", 1.0)
        plugins = [SUPPORT / "any_token.py"]
    # Two prompts in a micro-batch, two micro-batches a step, two updates of one generation batch,
    # and a reference model: every pass there is.
    flags = (
        *(*COIN, "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2"),
        *("--num_iterations", "2", "--log_entropy", "true"),
    )
    runs = stock, shared = with_and_without(model, shapes, tmp_path, *flags, plugins=plugins)
    assert SAYS not in stock.output
    # A tile of InternVL counts as an image.
    images = re.search(
        r"(\d+) images instead of (\d+), for 8 completions of 2 prompts", shared.output
    )
    assert images and int(images[2]) == 4 * int(images[1])
    assert len(updates(shared, "loss")) == 3
    for run in runs:
        assert any(run.metric("completions/vision_token_ratio")) == writes_images
        assert run.output.count("swift_vlrft: an answer holds an image") == writes_images
    for name in ("loss", "grad_norm", "kl", "entropy/mean", "clip_ratio/region_mean"):
        expected = pytest.approx(updates(stock, name), rel=1e-4, abs=1e-5)
        assert updates(shared, name) == expected, name


@pytest.mark.nightly
def test_every_loss_type_and_mask_is_the_same(tiny_qwen2_5_vl, shapes, tmp_path):
    """Loss types, levels of importance sampling, entropy mask and KL. Two updates of a generation,
    so that ratios are not 1; half a group in a micro-batch: ms-swift's sampler keeps groups
    together.
    """
    flags = (
        *(*COIN, "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2"),
        *("--num_generations", "8", "--num_iterations", "2", "--top_entropy_quantile", "0.5"),
        # A random model is nearly uniform: cold, so that no two entropies are one but for rounding,
        # which would put a token on either side of the quantile.
        *("--epsilon_high", "0.28", "--learning_rate", "1e-3", "--temperature", "0.1"),
    )
    plugins = [Path(__file__).parent / "plugins" / "every_loss.py"]
    stock, shared = with_and_without(tiny_qwen2_5_vl, shapes, tmp_path, *flags, plugins=plugins)
    assert "for 4 completions of 1 prompts" in shared.output
    names = [name for name in stock.steps[0] if name.startswith("loss_types/")]
    assert len(names) == 8
    for name in (*names, "grad_norm", "kl"):
        expected = pytest.approx(updates(stock, name), rel=1e-4, abs=1e-5)
        assert updates(shared, name) == expected, name
    last = {round(updates(stock, name)[-1], 6) for name in names}
    assert len(last) >= 3  # answers of one length: the means of four of the types are one


@pytest.mark.nightly
def test_zero3_with_offload_and_vllm_tensor_parallel(tiny_qwen2_5_vl, shapes, tmp_path):
    # vLLM's log-probabilities are an independent witness. LoRA, so that the reference is the same
    # model without its adapter.
    run = run_grpo(
        *(tiny_qwen2_5_vl, shapes, tmp_path, *COIN, *COLOCATED, *ZERO3, "--tuner_type", "lora"),
        *("--log_rollout_offpolicy_metrics", "true", "--vllm_tensor_parallel_size", "2"),
        *("--gradient_accumulation_steps", "2"),
        **VLLM_ON_CPU | ZERO3_VARIABLES | ON,
    )
    assert SAYS + "first micro-batch: " in run.output
    assert SAYS + "LoRA's dropout 0.05 draws one mask for a shared prompt" in run.output
    assert_trained(run, 3)
    assert all(abs(value) < 1e-2 for value in run.metric("rollout_correction/k3_kl"))


def test_a_micro_batch_of_text_is_left_to_ms_swift():
    """As one with videos is, in the run of test_videos.py."""
    with pytest.raises(CannotPack, match="it holds no images"):
        _pack(None, {}, None)
