"""Find flags that do not go together: ms-swift 4.6.0 and its libraries end the run at the line that
stands in the row, many only after the model is loaded.

--bf16 true --fp16 true                    transformers/training_args.py:1753
--packing true --attn_impl sdpa            swift/arguments/sft_args.py:196
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from swift_vlrft.families import sees_images
from swift_vlrft.recipe.rules.finding import Finding, problem
from swift_vlrft.recipe.rules.model import family
from swift_vlrft.recipe.run import NoValue, Run

FLASH = ("flash_attn", "flash_attention_2", "flash_attention_3", "flash_attention_4")
DTYPES = {"fp16": ("bf16", "bfloat16"), "bf16": ("fp16", "float16")}


class Clash(NamedTuple):
    flag: str
    """Where the finding stands."""
    where: str
    """File and line of the code that ends the run."""
    holds: Callable[[Run], bool]
    text: str
    """With `{flag}` for what a flag has been given."""


def _packs(run: Run) -> bool:
    return run.true("packing") or run.true("padding_free")


def _split(run: Run) -> bool:
    return run.integer("sequence_parallel_size") > 1


def _both_types(run: Run) -> bool:
    """A missing type follows --torch_dtype (model_args.py: _init_mixed_precision)."""
    return any(
        run.true(name)
        and (run.true(other) or (run.text("torch_dtype") == dtype and run.omits(other)))
        for name, (other, dtype) in DTYPES.items()
    )


def _best(run: Run) -> bool:
    return run.true("load_best_model_at_end") and run.text("save_strategy") != "best"


def _steps(run: Run) -> tuple[float, float]:
    saves = run.number("save_steps")
    return saves, run.number("eval_steps") or saves


def _sees(run: Run) -> bool:
    known = family(run)
    return known.images is not None if known else sees_images(Path(run.text("model") or "").name)


def _frozen(run: Run) -> bool:
    parts = all(run.true(f"freeze_{part}") for part in ("llm", "vit", "aligner"))
    more = ("trainable_parameters", "trainable_parameters_regex", "modules_to_save", "target_regex")
    return parts and _sees(run) and run.omits(*more)


def _crossed(run: Run) -> bool:
    """MIN_PIXELS is above MAX_PIXELS; either may be the family's default."""
    known = family(run)
    if known is None or known.images is None or not known.images.from_environment:
        return False
    low, high = known.images.limits(run.text("model"), run.image_limits)
    return low > high


def _of_text(run: Run, flag: str) -> bool:
    sees = sees_images(Path(run.text("model") or "").name)
    return sees and run.text(flag) in run.facts.names[f"{flag} of text"]


def _servers(run: Run) -> int:
    return len(run.texts("vllm_server_base_url") or run.texts("vllm_server_host"))


def _liger(holds: Callable[[Run], bool]) -> Callable[[Run], bool]:
    return lambda run: run.grpo and run.true("use_liger_kernel") and holds(run)


RLHF, SFT = "swift/arguments/rlhf_args.py", "swift/arguments/sft_args.py"
BASE, TRAINING = "swift/arguments/base_args/base_args.py", "transformers/training_args.py"
CLASHES = (
    Clash("packing", f"{SFT}:196", lambda run: _packs(run) and run.text("attn_impl") not in FLASH,
          "packed and padding-free rows need --attn_impl flash_attn"),
    Clash("packing", f"{RLHF}:715", lambda run: run.command == "rlhf" and _packs(run)
          and run.text("rlhf_type") not in ("grpo", "dpo", "kto", "gkd"),
          "--rlhf_type {rlhf_type} takes neither --packing nor --padding_free"),
    Clash("sequence_parallel_size", f"{RLHF}:723", lambda run: run.command == "rlhf"
          and _split(run) and run.text("rlhf_type") not in ("grpo", "dpo"),
          "--rlhf_type {rlhf_type} takes no --sequence_parallel_size"),
    Clash("sequence_parallel_size", "swift/sequence_parallel/sequence_parallel.py:668",
          lambda run: bool(run.processes % run.integer("sequence_parallel_size")),
          "--sequence_parallel_size {sequence_parallel_size} does not divide the processes"),
    Clash("lazy_tokenize", f"{BASE}:166",
          lambda run: run.true("lazy_tokenize") and run.true("packing"),
          "--packing true needs --lazy_tokenize false"),
    Clash("lazy_tokenize", f"{BASE}:168",
          lambda run: run.true("lazy_tokenize") and run.true("streaming"),
          "--streaming true needs --lazy_tokenize false"),
    Clash("streaming", "transformers/trainer.py:730",
          lambda run: run.true("streaming") and run.integer("max_steps") <= 0,
          "--streaming true: a stream has no length, so give --max_steps"),
    Clash("fp16", f"{TRAINING}:1753", _both_types, "bf16 and fp16 exclude each other"),
    Clash("load_best_model_at_end", f"{TRAINING}:1719",
          lambda run: _best(run) and run.text("eval_strategy") != run.text("save_strategy"),
          "--load_best_model_at_end needs --save_strategy {save_strategy} and --eval_strategy "
          "{eval_strategy} to be the same"),
    Clash("load_best_model_at_end", f"{TRAINING}:1739", lambda run: _best(run) and
          run.text("eval_strategy") == run.text("save_strategy") == "steps"
          and min(_steps(run)) >= 1 and bool(_steps(run)[0] % _steps(run)[1]),
          "--load_best_model_at_end: --save_steps {save_steps} is no multiple of --eval_steps "
          "{eval_steps}"),
    Clash("warmup_ratio", "swift/trainers/arguments.py:231",
          lambda run: bool(run.number("warmup_ratio") and run.number("warmup_steps")),
          "--warmup_ratio and --warmup_steps exclude each other"),
    Clash("freeze_llm", "torch/optim/optimizer.py:400",
          lambda run: _frozen(run) and run.text("tuner_type") == "full",
          "everything is frozen (--freeze_vit and --freeze_aligner are true by default)"),
    Clash("freeze_llm", "swift/utils/transformers_utils.py:225",
          lambda run: _frozen(run) and run.text("tuner_type") == "lora"
          and run.texts("target_modules") == ("all-linear",),
          "no part is left for LoRA (--freeze_vit and --freeze_aligner are true by default)"),
    Clash("model", "qwen_vl_utils/vision_process.py:66", _crossed,
          "MAX_PIXELS is less than MIN_PIXELS (by default 4 tokens, of 784 or 1024 pixels each); "
          "both count pixels, as 401408"),
    Clash("template", "", lambda run: _of_text(run, "template"),
          "--template {template} is for models without images: no image would be seen"),
    Clash("model_type", "", lambda run: _of_text(run, "model_type"),
          "--model_type {model_type} takes no images, and this model does: leave it out"),
    Clash("deepspeed", f"{SFT}:295",
          lambda run: not run.omits("deepspeed") and not run.omits("fsdp"),
          "--deepspeed and --fsdp exclude each other"),
    Clash("cached_dataset", f"{RLHF}:344", lambda run: run.grpo and not run.omits("cached_dataset"),
          "GRPO takes no --cached_dataset"),
    Clash("vllm_mode", f"{RLHF}:445",
          lambda run: run.grpo and not run.omits("vllm_mode") and not run.true("use_vllm"),
          "--vllm_mode {vllm_mode} needs --use_vllm true"),
    Clash("vllm_server_group_port", "swift/rlhf_trainers/vllm_client.py:224",
          lambda run: run.grpo and not run.omits("vllm_server_group_port")
          and len(run.texts("vllm_server_group_port")) != _servers(run),
          "--vllm_server_group_port {vllm_server_group_port}: give a port for each server"),
    Clash("async_generate", f"{RLHF}:456",
          lambda run: run.grpo and run.true("async_generate") and run.text("vllm_mode") != "server",
          "--async_generate true needs --vllm_mode server"),
    Clash("async_generate", f"{RLHF}:569", lambda run: run.grpo and run.true("async_generate")
          and not run.omits("multi_turn_scheduler"),
          "--async_generate true takes no --multi_turn_scheduler"),
    *(Clash("use_liger_kernel", f"{RLHF}:{line}", _liger(holds), f"liger in GRPO takes no {what}")
      for line, what, holds in (
          (550, "--delta", lambda run: not run.omits("delta")),
          (552, "sequence parallel", _split),
          (554, "--padding_free", lambda run: run.true("padding_free")),
          (556, "--top_entropy_quantile", lambda run: run.number("top_entropy_quantile") < 1),
          (558, "--log_entropy", lambda run: run.true("log_entropy")),
          (566, "--advantage_estimator", lambda run: run.text("advantage_estimator") != "grpo"))),
)  # fmt: skip


def clashes(run: Run) -> Iterator[Finding]:
    for clash in CLASHES if run.trains else ():
        with suppress(NoValue):
            if clash.holds(run):
                text = clash.text.format_map(_Values(run)) + f" ({clash.where})" * bool(clash.where)
                yield problem(run, clash.flag, "clash", text)


class _Values(dict[str, str]):
    def __init__(self, run: Run) -> None:
        self.run = run

    def __missing__(self, name: str) -> str:
        flag = self.run.given.get(name)
        return " ".join(flag.values) if flag else str(self.run.read(name))
