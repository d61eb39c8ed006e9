"""Ask a plan backwards: the largest value of a flag, or the cheapest machine, with which it fits.

    for answer in largest(planned, ["max_completion_length", "MAX_PIXELS"]):
        answer.name, answer.value, answer.bound
    "MAX_PIXELS", 3211264, "3212048: backward takes 66.4 of 72.7 GiB, which the error may exceed"

A value fits where its plan says ``fits``, which leaves the planner's own error as a margin, and
where it breaks no rule of `vlrft check` between flags.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.memory.advice import Change
from swift_vlrft.memory.estimate import Plan, estimate, gib
from swift_vlrft.memory.from_recipe import as_written, changed
from swift_vlrft.memory.recipe_plan import RecipePlan, plan_for
from swift_vlrft.memory.settings import Settings

LENGTHS, AREAS = range(64, 2**18 + 1, 64), range(28**2, 2**24, 28**2)
VALUES = {
    **{"max_completion_length": LENGTHS, "vllm_max_model_len": LENGTHS},
    **{"MAX_PIXELS": AREAS, "max_pixels": AREAS, "lora_rank": range(8, 513, 8)},
    **{"per_device_train_batch_size": range(1, 65), "num_generations": range(2, 129)},
}
"""The values that are tried, by name."""
EACH = ("per_device_train_batch_size", "num_generations")
"""Names of which every value is tried: some between those that fit divide nothing."""
MACHINES = ("1x24", "1x40", "2x24", "1x48", "1x80", "4x24", "2x48", "2x80", "8x24", "4x80", "8x80")
"""The machines that are tried, from the least memory in all to the most."""


@dataclass(frozen=True)
class Answer:
    name: str
    value: int | str | None  # None: nothing fits
    bound: str
    """What the next larger value meets; where nothing fits, what the smallest meets."""
    change: Change
    """The flags of the run, and its plan."""
    planned: RecipePlan


def largest(planned: RecipePlan, names: Sequence[str]) -> list[Answer]:
    """Return an answer for each name alone; ValueError for a name that changes no memory.

    A run that does not fit as it is begins with the cheapest change that makes it fit.
    """
    for name in names:
        if name not in VALUES:
            known = ", ".join(VALUES)
            raise ValueError(f"--largest {name}: known are {known}, and alone: gpus")
    changes = [] if planned.plan.verdict == "fits" else planned.changes()
    first = next((change.flags for change in changes if _fits(change.plan)), {})
    return [_largest(planned, name, first) for name in names]


def _largest(planned: RecipePlan, name: str, first: dict[str, str]) -> Answer:
    first = {flag: value for flag, value in first.items() if flag != name}
    now, values, tried = planned.plan.settings, VALUES[name], dict[int, Plan | str]()
    run = changed(planned.run, first)
    written = as_written(run, planned.gpus, nodes=planned.nodes, longest=planned.longest)
    if values is LENGTHS and now.model.context:
        prompt = now.length - now.completion if name == "max_completion_length" else 0
        values = values[: max(1, (now.model.context - prompt) // values.step)]

    def fits(value: int) -> bool:
        try:
            settings = written({name: str(value)})
            if values is AREAS:
                _refuse_long(settings)
            tried[value] = estimate(settings)
        except ValueError as error:
            tried[value] = str(error)
        return _fits(tried[value])

    fits(values[-1])
    if name in EACH:
        best = max(filter(fits, values), default=0)
    else:
        best = values.start + values.step * (bisect_left(values, 1, key=lambda n: not fits(n)) - 1)
    plans = {n: plan for n, plan in tried.items() if isinstance(plan, Plan)}
    sizes = {(*(phase.total for phase in p.phases), *p.failures) for p in plans.values()}
    engine = name == "vllm_max_model_len" and now.colocated  # its share holds rows of any length
    if len(plans) > 1 and len(sizes) == 1 and not engine:
        limit = f": {now.pixels} limits its pictures" if values is AREAS else ""
        raise ValueError(f"--largest {name}: it changes no memory of this run{limit}")
    # Of what lies beyond, memory says more than a number that divides nothing.
    beyond = sorted(n for n in tried if n > best)
    beyond = [n for n in beyond if n in plans][:1] or beyond[:1]
    bound = _bound(f"{beyond[0]}", tried[beyond[0]]) if beyond else f"no more than {best} is tried"
    if below := [n for n in sorted(plans) if n < best and not _fits(plans[n])]:
        bound += f"; not monotone: {below[0]} does not fit"
    if best < values.start:
        return Answer(name, None, bound, Change(first, ""), planned)
    change = Change(first | {name: str(best)}, "", plan=plans[best])
    return Answer(name, best, bound, change, planned)


def cheapest_machine(
    path: str | Path, arguments: Sequence[str] = (), dataset: Path | None = None
) -> Answer:
    """Return the first of MACHINES on which a recipe fits, with the flags that it needs there."""
    bound = ""
    for machine in MACHINES:
        try:
            planned, flags = plan_for(path, machine, arguments, dataset)
        except ValueError as error:
            bound = f"{machine}: {error}"
            continue
        if _fits(planned.plan):
            return Answer("gpus", machine, bound, Change(flags, "", plan=planned.plan), planned)
        bound = _bound(machine, planned.plan)
    raise ValueError(f"--largest gpus: no machine of the list will do. {bound}")


def _refuse_long(settings: Settings) -> None:
    """Raise ValueError for pictures that leave no room for a row, which would then not train."""
    tokens, engine = settings.prompt + settings.image_tokens, settings.vllm_max_length
    rooms = {"--max_length": settings.max_length}
    rooms["--vllm_max_model_len"] = engine and engine - settings.completion
    for flag, room in rooms.items():
        if room and tokens > room:
            raise ValueError(f"its prompt takes {tokens} tokens, and {flag} leaves {room}")


def _fits(plan: Plan | str | None) -> bool:
    return isinstance(plan, Plan) and plan.verdict == "fits"


def _bound(value: str, outcome: Plan | str) -> str:
    if isinstance(outcome, str):
        return f"{value}: {outcome}"
    if outcome.failures:
        return f"{value}: {outcome.failures[0]}"
    peak, room = outcome.peak, outcome.settings.gpu_bytes
    over = "too near for the planner's error" if outcome.fits else "which is too much"
    return f"{value}: {peak.name} takes {gib(peak.total)} of {gib(room)} GiB, {over}"
