"""Batch and tensor parallel by the estimated seconds of a step, where memory allows several.

    quickest(plan, speed, source, written)
    Faster(flags={"vllm_tensor_parallel_size": "2"}, before=10.4, after=9.1)
    first_by_time(changes, speed)       the first change, or a quicker one of the same kind

Only for GPUs whose speed is known. A small difference is within what the estimate leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from swift_vlrft.memory.advice import Change, Written, batch_flags
from swift_vlrft.memory.analytic import scaled_from
from swift_vlrft.memory.estimate import Plan, estimate
from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.speeds import Speed
from swift_vlrft.memory.stages import Source
from swift_vlrft.memory.step_time import answers_of, step_time

WORTH = 0.1
"""Share of a step below which a faster setting is not taken."""

ALIKE = 0.02
"""Share of a step within which the setting with fewer changes is taken."""

TENSOR_PARALLEL = "vllm_tensor_parallel_size"

CHOSEN = {
    *("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"),
    TENSOR_PARALLEL,
}
"""Flags that change neither the step's completions nor its result, only its time and memory."""


@dataclass(frozen=True)
class Faster:
    flags: dict[str, str]
    before: float
    after: float  # Seconds of a step

    @property
    def remark(self) -> str:
        named = " ".join(f"{name} {value}" for name, value in self.flags.items())
        return f"{named}: a step of about {self.after:.1f} s instead of {self.before:.1f} s"


def seconds(settings: Settings, speed: Speed) -> float:
    """With answers as long as they may be, as memory is planned."""
    return step_time(settings, speed, answers_of(settings)).seconds or 0.0


def quickest(plan: Plan, speed: Speed | None, source: Source, written: Written) -> Faster | None:
    """Other flags with which the run fits as surely and a step takes clearly less time."""
    if speed is None or not plan.fits:
        return None
    rough, before = scaled_from(plan.settings, source), seconds(plan.settings, speed)
    found = []
    for flags in _options(plan.settings):
        if (settings := written(flags)) is None:
            continue
        if (after := seconds(settings, speed)) < before * (1 - WORTH):
            found.append(Faster(flags, before, after))
    for best in sorted(found, key=lambda one: (one.after // (ALIKE * before), len(one.flags))):
        settings = written(best.flags)
        sources = (rough, source)  # the second may have to trace
        if settings and all(estimate(settings, each).verdict == "fits" for each in sources):
            return best
    return None


def first_by_time(changes: list[Change], speed: Speed | None) -> Change:
    """The first change; if it is one of batch or tensor parallel, the quickest of these."""
    first = changes[0]
    if speed is None or not set(first.flags) <= CHOSEN:
        return first
    alike = [c for c in changes if set(c.flags) <= CHOSEN and c.plan and c.plan.fits]
    timed = [(seconds(c.plan.settings, speed), c) for c in alike if c.plan]
    least, best = min(timed, key=lambda pair: pair[0])
    now = next(taken for taken, change in timed if change is first)
    return best if least < now * (1 - WORTH) else first


def _options(s: Settings) -> Iterator[dict[str, str]]:
    """Other divisions of a step's completions into passes, with other sizes of an engine."""
    rows = s.batch * s.accumulation
    batches = [2**n for n in range(8) if rows % 2**n == 0 and 2**n <= rows]
    sizes = [s.vllm_tp]
    if s.rollout == "vllm_colocate":
        sizes = [n for n in (1, 2, 4, 8) if s.processes % n == 0 and s.model.heads % n == 0]
    for batch in {s.batch, *batches}:
        for tp in {s.vllm_tp, *sizes}:
            flags: dict[str, str] = {}
            if batch != s.batch:
                flags |= batch_flags(s, batch, rows // batch)
            if tp != s.vllm_tp:
                flags[TENSOR_PARALLEL] = str(tp)
            if flags:
                yield flags
