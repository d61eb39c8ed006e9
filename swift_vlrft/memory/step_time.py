"""What an optimizer step takes: tokens, operations and, on a GPU whose speed is known, seconds.

    step = step_time(settings, SPEEDS["H100"], Answers(200, 400))
    step.generated, step.trained, step.seconds, step.larger        49152, 98304, 21.3, "rollout"

A roofline: a phase takes as long as the slowest of its computation, its reading of memory, its
traffic between GPUs and its kernel launches, each at a stated share of the GPU's peak. Nothing
here has been measured on a GPU; docs/plan.md compares it with published step times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swift_vlrft.memory import generation, updating
from swift_vlrft.memory.generation import Answers
from swift_vlrft.memory.operations import Operations
from swift_vlrft.memory.roofline import Cost
from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.speeds import Speed

LABEL = "estimate, not yet measured on a GPU"

PUBLISHED = (1.2, 1.5, 2.2)
"""Published over estimated seconds of a step: a quarter of the reports lies below the first number,
half below the second, a quarter above the third (benchmarks/time_cases.py, 36 reports). No constant
of the estimate was fitted to them."""

LONGEST = 2.0
"""The longest answer of a generation over their mean, at most --max_completion_length. Assumed."""

QUARTERS = ("quarter", "median", "three_quarters")

SYNC, PREFILL, DECODE = "weight sync", "prefill", "decode"
LOGPS, PASSES, STEP = "log-probabilities", "forward, backward", "optimizer step"
ROLLOUT = (SYNC, PREFILL, DECODE)


@dataclass(frozen=True)
class Phase:
    name: str
    operations: Operations  # Of all GPUs
    seconds: float | None
    bound: str | None
    """What takes the seconds: compute, memory, link, PCIe, launches or CPU."""


@dataclass(frozen=True)
class StepTime:
    """One optimizer step; a generation that serves several counts in part."""

    speed: Speed | None
    answers: Answers
    prompts: float  # Tokens that the engines read
    generated: float
    trained: float
    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float | None:
        return self._sum(phase.name for phase in self.phases)

    @property
    def rollout(self) -> float | None:
        return self._sum(ROLLOUT)

    @property
    def larger(self) -> str | None:
        """rollout | training: the half that takes more; None without seconds or a rollout."""
        if not self.seconds or not self.rollout:
            return None
        return "rollout" if self.rollout > self.seconds / 2 else "training"

    def _sum(self, names: Any) -> float | None:
        wanted = set(names)
        found = [phase.seconds for phase in self.phases if phase.name in wanted]
        return None if self.speed is None else sum(value or 0.0 for value in found)

    def as_dict(self) -> dict[str, Any]:
        return {
            "label": LABEL,
            "gpu": self.speed and self.speed.kind,
            "answer_tokens": {"mean": self.answers.mean, "longest": self.answers.longest},
            "tokens": {
                "prompts": round(self.prompts),
                "generated": round(self.generated),
                "trained": round(self.trained),
            },
            "phases": {
                phase.name: {
                    "operations": round(phase.operations.total),
                    "vision_operations": round(phase.operations.vit),
                    "seconds": rounded(phase.seconds),
                    "bound_by": phase.bound,
                }
                for phase in self.phases
            },
            "operations": round(sum(phase.operations.total for phase in self.phases)),
            "seconds": rounded(self.seconds),
            "rollout_seconds": rounded(self.rollout),
            "larger_half": self.larger,
            "published_over_estimated": dict(zip(QUARTERS, PUBLISHED, strict=True)),
        }


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def answers_of(s: Settings, mean: float | None = None) -> Answers:
    """``mean``: tokens of a usual answer; without it every answer is as long as allowed."""
    if mean is None:
        return Answers(s.completion, s.completion)
    return Answers(min(mean, s.completion), min(LONGEST * mean, s.completion))


def step_time(
    s: Settings, speed: Speed | None, answers: Answers, *, server_gpus: int | None = None
) -> StepTime:
    """``server_gpus``: GPUs of the rollout server, which a recipe's settings do not have."""
    work: list[tuple[str, Operations, list[Cost]]] = []
    read = generated = 0.0
    if s.rollout != "none":
        engines = generation.engines(s, answers, server_gpus)
        # Generations in one optimizer step.
        times = s.accumulation * s.batch / (s.generated_at_once * max(1, s.iterations))
        linked = speed is None or speed.link > speed.pcie
        prefill = generation.prefill(s, engines)
        decode = generation.decode(s, engines, answers, linked=linked)
        generated = times * s.generated_at_once * s.processes * answers.mean
        prompts = generation.read_prompts(s, engines) * engines.count
        read = times * prompts * generation.prompt(s)
        work.append((SYNC, Operations(), generation.weight_sync(s, times)))
        for name, (operations, costs) in (
            (PREFILL, prefill),
            (DECODE, decode),
        ):
            work.append((name, operations * times, [cost.times(times) for cost in costs]))
    work.append((LOGPS, *updating.log_probabilities(s, answers)))
    work.append((PASSES, *updating.forward_backward(s, answers)))
    work.append((STEP, Operations(), updating.optimizer_step(s)))
    return StepTime(
        speed,
        answers,
        read,
        generated,
        updating.trained_tokens(s, answers),
        tuple(_phase(*row, speed) for row in work if row[2]),
    )


def _phase(name: str, operations: Operations, costs: list[Cost], speed: Speed | None) -> Phase:
    if speed is None:
        return Phase(name, operations, None, None)
    taken = [cost.on(speed) for cost in costs]
    return Phase(name, operations, sum(seconds for seconds, _ in taken), max(taken)[1])
