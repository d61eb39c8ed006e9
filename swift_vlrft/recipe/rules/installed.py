"""Packages that a recipe needs and this machine lacks; nothing is imported to find out."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from swift_vlrft.recipe.reader import Recipe
from swift_vlrft.recipe.rules.batches import finding
from swift_vlrft.recipe.rules.finding import PROBLEM, Finding

TRACKERS = ("tensorboard", "wandb", "swanlab")


def installed(recipe: Recipe) -> Iterator[Finding]:
    for flag, module, install, why in needs(recipe):
        if importlib.util.find_spec(module) is None:
            yield finding(
                recipe,
                flag,
                PROBLEM,
                "not-installed",
                f"{why}, and the package is not installed here: pip install {install}",
            )


def needs(recipe: Recipe) -> Iterator[tuple[str, str, str, str]]:
    """Flag, module, what to install, why."""
    if recipe.command[-1] in ("rlhf", "rollout"):
        # swift.rlhf_trainers.utils imports it; ms-swift does not require it.
        yield "", "msgspec", "msgspec", "ms-swift's GRPO imports msgspec without requiring it"
    if recipe.truth("use_vllm") or recipe.command[-1] == "rollout":
        yield "use_vllm", "vllm", "vllm", "rollouts are to be made by vLLM"
    if recipe.flag("deepspeed"):
        yield "deepspeed", "deepspeed", "deepspeed", "--deepspeed is asked for"
    model = (recipe.get("model") or "").lower()
    if "qwen" in model and "vl" in model:
        yield "model", "qwen_vl_utils", "'qwen-vl-utils>=0.0.14'", "Qwen-VL models need it"
    if "flash" in (recipe.get("attn_impl") or ""):
        yield "attn_impl", "flash_attn", "flash-attn --no-build-isolation", "--attn_impl needs it"
    if recipe.truth("use_liger_kernel"):
        yield "use_liger_kernel", "liger_kernel", "'liger-kernel>=0.7.0'", "--use_liger_kernel"
    if (recipe.get("quant_method") or "") == "bnb":
        yield "quant_method", "bitsandbytes", "bitsandbytes", "--quant_method bnb needs it"
    if "accuracy" in recipe.values("reward_funcs"):
        yield "reward_funcs", "math_verify", "math_verify", "the reward accuracy needs math_verify"
    for tracker in recipe.values("report_to"):
        if tracker in TRACKERS:
            yield "report_to", tracker, tracker, f"--report_to {tracker}"
