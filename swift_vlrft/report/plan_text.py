"""A plan in words and tables, for a terminal and for a page.

    for part in plan_parts(planned, "recipe.sh"): ...       Grid or Line, in the order of reading

Nothing here is escaped: whoever shows it does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from swift_vlrft.memory.advice import Change
from swift_vlrft.memory.estimate import ERROR
from swift_vlrft.memory.phases import COMPONENTS
from swift_vlrft.memory.recipe_plan import RecipePlan
from swift_vlrft.memory.settings import GIB

HEADINGS = {
    **{"weights": "wgts", "reference model": "ref", "gradients": "grad", "optimizer": "opt"},
    **{"activations LLM": "LLM", "activations ViT": "ViT", "logits": "lgts"},
    **{"temporaries": "temp", "gathers": "gath", "vLLM weights": "vLLM", "KV cache": "KV"},
    **{"vLLM activations": "vact", "CUDA graphs": "grph", "context, fragmentation": "ctx"},
    "total": "sum",
}
"""Short enough for a table of 80 columns; docs/plan.md and --json have the long names."""

REST = ("vLLM activations", "CUDA graphs", "context, fragmentation")
"""Merged into one column, "rest", if a table would be wider than the terminal."""


class Line(NamedTuple):
    """``colour``: green, yellow or red for the ``marked`` words at its start, else ""."""

    text: str
    colour: str = ""
    marked: str = ""


class Grid(NamedTuple):
    """A heading that begins with ">" is aligned to the right; ``bold``: the row of the peak."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    bold: int | None = None


def plan_parts(planned: RecipePlan, name: str, width: int = 200) -> Iterator[Grid | Line]:
    """All that ``vlrft plan`` says; ``width``: the columns of a terminal."""
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
    """The table of phases, the verdict, and what was assumed."""
    plan = planned.plan
    yield _phases(planned, name, width)
    peak, colour = plan.peak, {"fits": "green", "tight": "yellow"}.get(plan.verdict, "red")
    verdict = plan.verdict + (f" in {peak.name}" if plan.verdict == "out of memory" else "")
    yield Line(
        f": peak {peak.total / GIB:.1f} GiB in {peak.name}, {plan.headroom / GIB:+.1f} GiB of "
        f"room, error {ERROR:.0%}",
        colour,
        verdict,
    )
    if plan.host:
        yield Line(f"host memory for offloading: {plan.host / GIB:.0f} GiB a node")
    for failure in plan.failures:
        yield Line("", "red", failure)
    yield Line(
        f"activations, logits, temporaries: {plan.how}; weights, optimizer, gradients, gathers, "
        "KV cache: analytic; CUDA context, fragmentation, CUDA graphs: assumed"
    )
    for note in plan.settings.assumptions:
        yield Line(f"assumed: {note}")


def _phases(planned: RecipePlan, name: str, width: int) -> Grid:
    phases = planned.plan.phases
    used = [n for n in COMPONENTS if any(p.parts.get(n, 0) >= GIB / 20 for p in phases)]
    columns: dict[str, tuple[str, ...]] = {HEADINGS[name]: (name,) for name in used}
    if 13 + 5 * (len(columns) + 1) > width:
        columns = {head: names for head, names in columns.items() if names[0] not in REST}
        columns["rest"] = REST
    rows = []
    for phase in phases:
        short = phase.name.replace("old/reference log-probabilities", "log-probs")
        cells = [sum(phase.parts.get(n, 0) for n in names) for names in columns.values()]
        sizes = [_size(cell / GIB) for cell in [*cells, phase.total]]
        rows.append((short.replace("optimizer ", ""), *sizes))
    bold = next(n for n, phase in enumerate(phases) if phase is planned.plan.peak)
    title = f"{name}: GiB on each GPU of {planned.gpus.gib:.1f} ({planned.gpus.name})"
    heads = (f">{head}" for head in [*columns, HEADINGS["total"]])
    return Grid(title, ("phase", *heads), rows, bold)


def _size(value: float) -> str:
    return "" if value < 0.05 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def change_parts(title: str, changes: list[Change]) -> Iterator[Grid]:
    """As a table, if there are any."""
    rows: list[tuple[str, ...]] = [
        (
            change.label,
            f"{change.plan.peak.total / GIB:.1f} {change.plan.verdict}",
            f"{change.work - 1:+.0%}" if abs(change.work - 1) >= 0.005 else "",
            change.cost,
        )
        for change in changes
        if change.plan
    ]
    if rows:
        yield Grid(title, ("change", ">peak", ">operations", "costs"), rows)
