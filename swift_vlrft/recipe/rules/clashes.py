"""Find flags that do not go together, where ms-swift says so late or never.

--vllm_mode colocate without --use_vllm true       answers come from transformers
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


class Clash(NamedTuple):
    flag: str
    """Where the finding stands."""
    holds: Callable[[Run], bool]
    text: str
    """With `{given}` for what the flag has been given."""


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


CLASHES = (
    Clash("sequence_parallel_size",
          lambda run: bool(run.processes % run.integer("sequence_parallel_size")),
          "--sequence_parallel_size {given} does not divide the processes"),
    Clash("streaming", lambda run: run.true("streaming") and run.integer("max_steps") <= 0,
          "--streaming true: a stream has no length, so give --max_steps"),
    Clash("freeze_llm", lambda run: _frozen(run) and run.text("tuner_type") == "full",
          "everything is frozen (--freeze_vit and --freeze_aligner are true by default)"),
    Clash("freeze_llm", lambda run: _frozen(run) and run.text("tuner_type") == "lora"
          and run.texts("target_modules") == ("all-linear",),
          "no part is left for LoRA (--freeze_vit and --freeze_aligner are true by default)"),
    Clash("model", _crossed,
          "MAX_PIXELS is less than MIN_PIXELS (by default 4 tokens, of 784 or 1024 pixels each); "
          "both count pixels, as 401408"),
    Clash("template", lambda run: _of_text(run, "template"),
          "--template {given} is for models without images: no image would be seen"),
    Clash("model_type", lambda run: _of_text(run, "model_type"),
          "--model_type {given} takes no images, and this model does: leave it out"),
    Clash("vllm_mode",
          lambda run: run.grpo and not run.omits("vllm_mode") and not run.true("use_vllm"),
          "--vllm_mode {given} needs --use_vllm true"),
)  # fmt: skip


def clashes(run: Run) -> Iterator[Finding]:
    for clash in CLASHES if run.trains else ():
        with suppress(NoValue):
            if clash.holds(run):
                flag = run.given.get(clash.flag)
                text = clash.text.format(given=" ".join(flag.values) if flag else "")
                yield problem(run, clash.flag, "clash", text)
