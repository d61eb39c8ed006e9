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
KERNELS = {"fla": "flash-linear-attention", "causal_conv1d": "causal-conv1d"}
"""Of Gated DeltaNet: modules, and what to install."""


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


def kernels(run: Run) -> Iterator[Finding]:
    """transformers/integrations/hub_kernels.py: use_kernel_func_from_hub_with_fallback, and
    ms-swift's model/models/qwen.py: _get_linear_attention_kernels.
    """
    known = family(run) if run.trains else None
    if known is None or not known.gated_delta_net or not installed_versions():
        return
    lacking = [name for module, name in KERNELS.items() if not importlib.util.find_spec(module)]
    packs = next((name for name in ("packing", "padding_free") if run.true(name)), None)
    if packs and KERNELS["fla"] in lacking:
        text = f"--{packs} with {known.name} needs flash-linear-attention, which is not installed"
        yield problem(run, packs, "not-installed", f"{text} here: pip install {KERNELS['fla']}")
    elif lacking:
        text = (
            f"{known.name} without {' and '.join(lacking)}, not installed here: three of four "
            "layers run in plain PyTorch, right but much slower; pip install " + " ".join(lacking)
        )
        yield note(run, "model", "kernels", text)


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
    answers = run.command == "sft" and value_of("predict_with_generate") == "true"
    if answers and value_of("eval_metric") in ("", "nlg"):  # a reward's metric needs no jieba
        yield "predict_with_generate", "jieba", "jieba"
