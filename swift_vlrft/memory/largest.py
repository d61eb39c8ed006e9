"""Ask a plan backwards: the largest value of a flag, or the cheapest machine, with which it fits.

    for answer in largest_values(planned, ["max_completion_length", "MAX_PIXELS"]):
        answer.name, answer.largest, answer.bound
    "MAX_PIXELS", 1448832, "1449616: a prompt of 2105 tokens exceeds --max_length 2048"

A value fits where its plan says ``fits``, which leaves the planner's own error as a margin, and
where it breaks no rule of `vlrft check` between flags.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.memory.append import elsewhere, run_with
from swift_vlrft.memory.estimate import Plan, estimate, gib
from swift_vlrft.memory.from_recipe import changed, nodes_of
from swift_vlrft.memory.recipe_plan import RecipePlan, for_machine, planned_run, read_training
from swift_vlrft.memory.settings import Settings, parse_gpus
from swift_vlrft.recipe.flags import flags_of
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.rules.batches import BATCHES
from swift_vlrft.recipe.shipped import recipe_path

ENGINE, PICTURES = "vllm_max_model_len", ("MAX_PIXELS", "max_pixels")
LENGTHS = ("max_completion_length", ENGINE)
EACH = {"per_device_train_batch_size": range(1, 65), "num_generations": range(2, 129)}
"""Of these every value is tried: some between those that fit divide nothing, or take more."""
VALUES = dict.fromkeys(LENGTHS, range(64, 2**18 + 1, 64))
VALUES |= dict.fromkeys(PICTURES, range(28**2, 2**24, 28**2))
VALUES |= {"lora_rank": range(8, 513, 8), **EACH}
"""The values that are tried, by name."""
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
        known = f"{', '.join(VALUES)}, and gpus, alone, without --gpus, --nodes and --run"
        raise ValueError(f"--largest {unknown[0]}: known are {known}")
    for finding in check_recipe(planned.run, BATCHES):
        if finding.level == PROBLEM:
            raise ValueError(f"{planned.path}: nothing runs before this is mended: {finding.text}")
    fitting = (c.flags for c in planned.changes() if c.plan and c.plan.verdict == "fits")
    first = next(fitting, {})
    return [_largest(planned, name, first) for name in names]


def _largest(planned: RecipePlan, name: str, first: Mapping[str, str]) -> Answer:
    first = {flag: value for flag, value in first.items() if flag != name}
    now, values = planned.plan.settings, VALUES[name]
    plans, refused = dict[int, Plan](), dict[int, str]()
    if name in PICTURES and now.grids and name != now.pixels:
        return Answer(name, None, f"what limits the pictures of this run is {now.pixels}")

    def too_large(value: int) -> bool:
        try:
            settings = planned.written(first | {name: str(value)})
            _refuse_long(settings, name)
            plans[value] = estimate(settings)
        except ValueError as error:
            refused[value] = str(error)
            # A rule between flags says of the engine's rows that they are too short.
            return name != ENGINE or value > (now.model.context or value)
        return plans[value].verdict != "fits"

    if name in EACH:
        best = max((value for value in values if not too_large(value)), default=0)
    else:
        too_large(values[0])
        best = values.start + values.step * (bisect_left(values, True, key=too_large) - 1)
    sizes = {(*(phase.total for phase in p.phases), *p.failures) for p in plans.values()}
    # The engine's share holds rows of any length.
    if len(plans) > 1 and len(sizes) == 1 and not (name == ENGINE and now.colocated):
        return Answer(name, None, "it changes no memory of this run")
    # Of what lies beyond, memory says more than a number that divides nothing.
    said = refused | {value: _bound(plan) for value, plan in plans.items()}
    beyond = sorted(value for value in said if value > best or best not in plans)
    beyond.sort(key=lambda value: value not in plans)
    bound = f"{beyond[0]}: {said[beyond[0]]}" if beyond else f"no more than {best} is tried"
    if best not in plans:
        return Answer(name, None, bound)
    runs = planned.run_with(first | {name: str(best)})
    return Answer(name, best, bound, runs.command, runs.problems)


def _refuse_long(settings: Settings, name: str) -> None:
    """Raise ValueError if the longest row, which would then not train, goes into no room."""
    engine = settings.vllm_max_length if settings.colocated else None
    row = engine if name == ENGINE else settings.length
    prompt = settings.prompt + settings.image_tokens - settings.crop_tokens
    limits = {"--vllm_max_model_len": engine, "the model's context": settings.model.context}
    if name in PICTURES and prompt > (settings.max_length or prompt):
        raise ValueError(f"a prompt of {prompt} tokens exceeds --max_length {settings.max_length}")
    for limit, most in limits.items() if name in (*PICTURES, *LENGTHS) else ():
        if row and row > (most or row):
            raise ValueError(f"a row of {row} tokens exceeds {limit}, {most}")


def _bound(plan: Plan) -> str:
    if plan.failures:
        return plan.failures[0]
    peak, room = gib(plan.peak.total), gib(plan.settings.gpu_bytes)
    over = "too near for the planner's error" if plan.fits else "which is too much"
    return f"{plan.peak.name} takes {peak} of {room} GiB, {over}"


def cheapest_machine(
    path: str | Path, arguments: Sequence[str] = (), dataset: Path | None = None
) -> Answer:
    """Return the first of MACHINES on which a recipe fits, with the flags that it needs there."""
    path, bound = recipe_path(path), "no smaller one is tried"
    run, _ = read_training(path, arguments, elsewhere())
    if nodes_of(run) > 1:
        raise ValueError(f"--largest gpus: {path} runs on {nodes_of(run)} nodes; set NNODES=1")
    for machine, gpus in zip(MACHINES, map(parse_gpus, MACHINES), strict=True):
        flags, _ = for_machine(run, gpus, None, {flag.name for flag in flags_of(arguments)})
        plan = planned_run(changed(run, flags), gpus, None, dataset).plan
        if plan.verdict == "fits":
            runs = run_with(path, flags, arguments)
            return Answer("gpus", machine, bound, runs.command, runs.problems)
        bound = f"{machine}: {_bound(plan)}"
    raise ValueError(f"--largest gpus: no machine of the list will do. {bound}")
