"""Say a plan in words and tables, for a terminal and for a page.

    for part in plan_parts(planned, "recipe.sh"): ...       Grid or Line, in the order of reading

Nothing here is escaped: whoever shows it does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from swift_vlrft.memory.advice import Change
from swift_vlrft.memory.estimate import ERROR, Phase
from swift_vlrft.memory.recipe_plan import RecipePlan
from swift_vlrft.memory.settings import GIB

COLUMNS = {
    "weights": ("weights", "reference model", "gathers"),
    "optimizer": ("gradients", "optimizer"),
    "activations": ("activations LLM", "activations ViT", "logits", "temporaries"),
    "vLLM": ("vLLM weights", "KV cache", "vLLM activations", "CUDA graphs"),
}
"""The columns of the table, and the components (docs/reference/planner.md) that each sums."""


class Line(NamedTuple):
    """A line of text; its ``marked`` words at the start are green, yellow or red."""

    text: str
    colour: str = ""
    marked: str = ""


class Grid(NamedTuple):
    """A table; columns with ">" before their heading are aligned right, row ``bold`` is bold."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    bold: int | None = None


def plan_parts(planned: RecipePlan, name: str, width: int = 200) -> Iterator[Grid | Line]:
    """Yield all that ``vlrft plan`` prints to a terminal of ``width`` columns."""
    changes, headroom = planned.changes(), planned.headroom()
    yield from memory_parts(planned, name, width)
    if not planned.plan.fits and not changes:
        yield Line("no set of known changes makes it fit: more or larger GPUs are needed")
    yield from change_parts("to make it fit, cheapest first", changes)
    if changes:
        runs = planned.run_with(changes[0])
        yield Line(f"run it with the first: {runs.command}")
        for problem in runs.problems:
            yield Line(f" {problem}", "red", "but first:")
    yield from change_parts("room to raise, each alone", headroom)


def memory_parts(planned: RecipePlan, name: str, width: int = 200) -> Iterator[Grid | Line]:
    """Yield the verdict, the table of phases, and the assumptions."""
    plan, gpus = planned.plan, planned.gpus
    peak, colour = plan.peak, {"fits": "green", "tight": "yellow"}.get(plan.verdict, "red")
    room = f"{abs(plan.headroom) / GIB:.1f} GiB {'too much' if plan.headroom < 0 else 'to spare'}"
    yield Line(
        f": {name} needs {peak.total / GIB:.1f} of {gpus.gib:.1f} GiB on each GPU ({gpus.name}) "
        f"in the phase `{peak.name}`, {room} (error {ERROR:.0%})",
        colour,
        plan.verdict,
    )
    yield _phases(planned, width)
    if plan.host:
        yield Line(f"host memory for offloading: {plan.host / GIB:.0f} GiB a node")
    for failure in plan.failures:
        yield Line("", "red", failure)
    for note in plan.settings.assumptions:
        yield Line(f"assumed: {note}")


def _phases(planned: RecipePlan, width: int) -> Grid:
    phases = planned.plan.phases
    used = [head for head, names in COLUMNS.items() if any(_sum(p, names) for p in phases)]
    rows = []
    for phase in phases:
        short = phase.name.replace("old/reference log-probabilities", "log-probs")
        sizes = [*(_sum(phase, COLUMNS[head]) for head in used), phase.allocated, phase.total]
        rows.append((short, *(_size(size / GIB) for size in sizes)))
    bold = next(n for n, phase in enumerate(phases) if phase is planned.plan.peak)
    heads = [f">{head}" for head in (*used, "allocated", "reserved")]
    return Grid("GiB on each GPU at the peak of each phase", ("phase", *heads), rows, bold)


def _sum(phase: Phase, names: tuple[str, ...]) -> int:
    return sum(phase.parts.get(name, 0) for name in names)


def _size(value: float) -> str:
    return "" if value < 0.05 else f"{value:.1f}"


def change_parts(title: str, changes: list[Change]) -> Iterator[Grid]:
    """Yield a table of changes, if there are any."""
    rows: list[tuple[str, ...]] = [
        (
            change.label,
            f"{change.plan.peak.total / GIB:.1f} {change.plan.verdict}",
            change.cost.replace(
                "host memory", f"host memory ({change.plan.host / GIB:.0f} GiB a node)"
            ),
        )
        for change in changes
        if change.plan
    ]
    if rows:
        yield Grid(title, ("change", ">peak", "costs"), rows)
