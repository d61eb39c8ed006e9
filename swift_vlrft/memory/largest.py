"""Ask a plan backwards: the largest value of a flag, or the cheapest machine, with which it fits.

    for answer in largest_values(planned, ["max_completion_length", "MAX_PIXELS"]):
        answer.name, answer.largest, answer.bound
    "MAX_PIXELS", 3211264, "3212048: backward takes 66.4 of 72.7 GiB, which the error may exceed"

A value fits where its plan says ``fits``, which leaves the planner's own error as a margin, and
where it breaks no rule of `vlrft check` between flags.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.memory.estimate import Plan, estimate, gib
from swift_vlrft.memory.from_recipe import as_written, changed
from swift_vlrft.memory.recipe_plan import RecipePlan, plan_for
from swift_vlrft.memory.settings import Settings

LENGTHS, AREAS, ENGINE = range(64, 2**18 + 1, 64), range(28**2, 2**24, 28**2), "vllm_max_model_len"
VALUES = {
    **{"max_completion_length": LENGTHS, ENGINE: LENGTHS},
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
    largest: int | str | None
    bound: str  # What the next larger value meets; without a value, why there is none
    command: str | None = None
    problems: tuple[str, ...] = ()  # What in the recipe stands against the command


def largest_values(planned: RecipePlan, names: Sequence[str]) -> list[Answer]:
    """Return an answer for each name alone; ValueError for a name that is none.

    A run that does not fit as it is begins with the cheapest change that makes it fit.
    """
    if unknown := [name for name in names if name not in VALUES]:
        known = ", ".join(VALUES)
        raise ValueError(f"--largest {unknown[0]}: known are {known}, and alone: gpus")
    changes = [] if planned.plan.verdict == "fits" else planned.changes()
    first = next((change.flags for change in changes if _fits(change.plan)), {})
    return [_largest(planned, name, first) for name in names]


def _largest(planned: RecipePlan, name: str, first: Mapping[str, str]) -> Answer:
    first = {flag: value for flag, value in first.items() if flag != name}
    now, values, tried = planned.plan.settings, VALUES[name], dict[int, Plan | str]()
    if values is AREAS and name != now.pixels:
        limits = "no flag" if now.pixels == "fixed" else now.pixels
        return Answer(name, None, f"it changes no memory of this run: {limits} limits its pictures")
    run = changed(planned.run, first)
    written = as_written(run, planned.gpus, nodes=planned.nodes, longest=planned.longest)
    if values is LENGTHS and now.model.context:
        prompt = now.length - now.completion if name != ENGINE else 0
        values = values[: max(1, (now.model.context - prompt) // values.step)]

    def too_large(value: int) -> bool:
        try:
            settings = written({name: str(value)})
            if values is AREAS:
                _refuse_long(settings)
            tried[value] = estimate(settings)
        except ValueError as error:
            tried[value] = str(error)
            return name != ENGINE  # of which a rule between flags says that it is too small
        return not _fits(tried[value])

    if name in EACH:
        best = max((value for value in values if not too_large(value)), default=0)
    else:
        too_large(values[0])
        best = values.start + values.step * (bisect_left(values, 1, key=too_large) - 1)
    plans = {n: plan for n, plan in tried.items() if isinstance(plan, Plan)}
    sizes = {(*(phase.total for phase in p.phases), *p.failures) for p in plans.values()}
    # The engine's share holds rows of any length.
    if len(plans) > 1 and len(sizes) == 1 and not (name == ENGINE and now.colocated):
        return Answer(name, None, "it changes no memory of this run")
    # Of what lies beyond, memory says more than a number that divides nothing.
    beyond = sorted(n for n in tried if n > best or best not in plans)
    beyond = [n for n in beyond if n in plans][:1] or beyond[:1]
    bound = _bound(beyond[0], tried[beyond[0]]) if beyond else f"no more than {best} is tried"
    if below := [n for n in sorted(plans) if n < best and not _fits(plans[n])]:
        bound += f"; not monotone: {below[0]} does not fit"
    if best not in plans:
        return Answer(name, None, bound)
    runs = planned.run_with(first | {name: str(best)})
    return Answer(name, best, bound, runs.command, runs.problems)


def cheapest_machine(
    path: str | Path, arguments: Sequence[str] = (), dataset: Path | None = None
) -> Answer:
    """Return the first of MACHINES on which a recipe fits, with the flags that it needs there."""
    bound = "no smaller one is tried"
    for machine in MACHINES:
        try:
            planned, flags = plan_for(path, machine, arguments, dataset)
        except ValueError as error:
            bound = f"{machine}: {error}"
            continue
        if _fits(planned.plan):
            runs = planned.run_with(flags)
            return Answer("gpus", machine, bound, runs.command, runs.problems)
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


def _bound(value: int | str, outcome: Plan | str) -> str:
    if isinstance(outcome, str):
        return f"{value}: {outcome}"
    if outcome.failures:
        return f"{value}: {outcome.failures[0]}"
    peak, room = outcome.peak, outcome.settings.gpu_bytes
    over = "too near for the planner's error" if outcome.fits else "which is too much"
    return f"{value}: {peak.name} takes {gib(peak.total)} of {gib(room)} GiB, {over}"
