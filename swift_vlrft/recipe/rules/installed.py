"""Packages that a recipe needs and this machine lacks, checked without importing them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from swift_vlrft.recipe.rules.finding import Finding, problem
from swift_vlrft.recipe.run import Run

TRACKERS = ("tensorboard", "wandb", "swanlab")


def installed(run: Run) -> Iterator[Finding]:
    for flag, module, install, why in needs(run):
        if importlib.util.find_spec(module) is None:
            text = f"{why}, and the package is not installed here: pip install {install}"
            yield problem(run, flag, "not-installed", text)


def needs(run: Run) -> Iterator[tuple[str, str, str, str]]:
    """Flag, module, what to install, why."""

    def given(name: str) -> str:
        """The value in the recipe; empty if there is none, or if it is not known."""
        found = run.setting(name)
        if isinstance(found.value, tuple):
            return " ".join(map(str, found.value))
        return "" if found.error or found.value is None else str(found.value).lower()

    if run.command in ("rlhf", "rollout"):
        # swift.rlhf_trainers.utils imports it; ms-swift does not require it.
        yield "", "msgspec", "msgspec", "ms-swift's GRPO imports msgspec without requiring it"
    if run.megatron:
        why = "`megatron` needs Megatron-Core, mcore-bridge and TransformerEngine"
        yield "", "mcore_bridge", "'ms-swift[megatron]'", why
        yield "", "transformer_engine", "'transformer_engine[pytorch]'", why
    if given("use_ray") == "true":
        yield "use_ray", "ray", "'ms-swift[ray]'", "--use_ray needs it"
    generates = not run.megatron or given("rlhf_type") in ("grpo", "gkd")
    if (given("use_vllm") == "true" and generates) or run.command == "rollout":
        yield "use_vllm", "vllm", "vllm", "rollouts are to be made by vLLM"
    if "deepspeed" in run.given:
        yield "deepspeed", "deepspeed", "deepspeed", "--deepspeed needs it"
    model = given("model")
    if "qwen" in model and "vl" in model:
        yield "model", "qwen_vl_utils", "'qwen-vl-utils>=0.0.14'", "Qwen-VL models need it"
    if "flash" in given("attn_impl"):
        yield "attn_impl", "flash_attn", "flash-attn --no-build-isolation", "--attn_impl needs it"
    if given("use_liger_kernel") == "true":
        yield "use_liger_kernel", "liger_kernel", "'liger-kernel>=0.7.0'", "--use_liger_kernel"
    if given("quant_method") == "bnb":
        yield "quant_method", "bitsandbytes", "bitsandbytes", "--quant_method bnb needs it"
    if "accuracy" in given("reward_funcs").split():
        yield "reward_funcs", "math_verify", "math_verify", "the reward accuracy needs math_verify"
    written = run.command == "sft" and given("predict_with_generate") == "true"
    if written and given("eval_metric") in ("", "nlg"):
        why = "ms-swift's metric of answers needs it (--eval_metric with a reward's name does not)"
        yield "predict_with_generate", "jieba", "jieba", why
    for tracker in given("report_to").split():
        if tracker in TRACKERS and "report_to" in run.given:
            yield "report_to", tracker, tracker, f"--report_to {tracker}"
