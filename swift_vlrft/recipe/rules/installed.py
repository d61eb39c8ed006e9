"""Find packages that a recipe needs and this machine lacks, without importing them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from swift_vlrft.recipe.facts import installed_versions
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import family
from swift_vlrft.recipe.run import NoValue, Run

FLAG_MODULES = (
    ("deepspeed", "", "deepspeed", "deepspeed"),
    ("attn_impl", "flash_att", "flash_attn", "flash-attn --no-build-isolation"),
    ("use_liger_kernel", "true", "liger_kernel", "'liger-kernel>=0.7.0'"),
    ("quant_method", "bnb", "bitsandbytes", "bitsandbytes"),
    *(("report_to", name, name, name) for name in ("tensorboard", "wandb", "swanlab")),
)
"""Flag, a part of its value, the module that it needs, what to install."""


def installed(run: Run) -> Iterator[Finding]:
    """Where ms-swift is missing no recipe runs, and what else it needs is missing, too."""
    if not installed_versions():
        text = "ms-swift is not installed here: what the recipe needs besides is not checked"
        yield note(run, "model", "not-installed", text)
        return
    for flag, module, install in needs(run):
        if importlib.util.find_spec(module) is None:
            text = f"--{flag} needs {module}, which is not installed here: pip install {install}"
            yield problem(run, flag, "not-installed", text)


def needs(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yield a flag, the module that it needs, and what to install."""

    def value_of(name: str) -> str:
        """The value, or the default; empty if there is none, or if it is not known."""
        value = run.setting(name)
        if isinstance(value, tuple):
            return " ".join(map(str, value))
        return "" if isinstance(value, NoValue) else str(value or "").lower()

    if value_of("use_vllm") == "true" or run.command == "rollout":
        yield "use_vllm", "vllm", "vllm"
    for flag, part, module, install in FLAG_MODULES:
        if flag in run.given and part in value_of(flag):
            yield flag, module, install
    known = family(run)
    if known and known.images and known.images.from_environment:
        yield "model", "qwen_vl_utils", "'qwen-vl-utils>=0.0.14'"
    if "accuracy" in value_of("reward_funcs").split():
        yield "reward_funcs", "math_verify", "math_verify"
