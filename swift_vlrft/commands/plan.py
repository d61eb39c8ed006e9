"""``vlrft plan``: does a run fit, which phase would fail, what to change.

vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4x80
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swift_vlrft.commands.output import print_json, show, table

if TYPE_CHECKING:
    from swift_vlrft.memory.advice import Change
    from swift_vlrft.memory.recipe_plan import RecipePlan
    from swift_vlrft.memory.step_time import StepTime

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

RecipeFile = Annotated[
    Path, typer.Argument(help="Shell script, or ms-swift's YAML or JSON configuration.")
]
GpusOption = Annotated[
    str | None,
    typer.Option("--gpus", help="Per node: 4x80 (GB), 4xA100-80G, 8xH20. Default: those here."),
]
NodesOption = Annotated[
    int | None, typer.Option("--nodes", min=1, help="Default: the recipe's NNODES, else 1.")
]
DatasetOption = Annotated[
    Path | None,
    typer.Option("--dataset", help="Parquet or JSON Lines: plan for its longest row."),
]
AnswerOption = Annotated[
    int | None,
    typer.Option("--answer-tokens", min=1, help="Tokens of a usual answer, for the seconds."),
]
QuickOption = Annotated[bool, typer.Option("--quick", help="Closed form: no trace, coarser.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def plan(
    recipe: RecipeFile,
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    dataset: DatasetOption = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a figure (.png, .svg, .pdf): bars per phase.")
    ] = None,
    answer_tokens: AnswerOption = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict the memory of a GRPO run per GPU and phase, before anything is downloaded, and
    estimate the seconds of a step on a GPU that is named.

    Example: vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4xH100

    Exit code 0: it fits; 1: out of memory; 2: the input cannot be used.
    """
    from swift_vlrft.memory.recipe_plan import plan_recipe
    from swift_vlrft.memory.step_time import answers_of

    planned = plan_recipe(recipe, gpus, nodes=nodes, dataset=dataset, quick=quick)
    if plot is not None:
        from swift_vlrft.memory.plot import draw

        draw(planned.plan, plot, title=recipe.name)
    changes, headroom = planned.changes(), planned.headroom()
    settings, notes = planned.plan.settings, planned.time_notes()
    time = planned.time(answers_of(settings, answer_tokens))
    if answer_tokens and answer_tokens > settings.completion:
        limit = "max_new_tokens" if settings.rollout == "none" else "max_completion_length"
        most = settings.completion
        notes.append(f"--answer-tokens {answer_tokens}: no answer is longer than {most} ({limit})")
    if as_json:
        found, known = planned.plan.as_dict(), planned.gpus
        found |= {
            "recipe": str(recipe),
            "gpus": {"count": known.count, "card": known.name, "gib": round(known.gib, 2)},
            "changes": [change.as_dict() for change in changes],
            "raise": [change.as_dict() for change in headroom],
            "time": time.as_dict() | {"assumptions": notes},
        }
        print_json(found)
    else:
        print_plan(planned, recipe.name)
        if not planned.plan.fits and not changes:
            typer.echo("no set of known changes makes it fit: more or larger GPUs are needed")
        print_changes("to make it fit, cheapest first", changes)
        print_changes("room to raise, each alone", headroom)
        print_time(time, notes, assumed=answer_tokens is None)
    raise typer.Exit(0 if planned.plan.fits else 1)


def plan_compare(
    recipe: RecipeFile,
    run: Annotated[Path, typer.Argument(help="Folder of a run with VLRFT_TRACK_MEMORY=1.")],
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    dataset: DatasetOption = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the plan of a recipe with what a run of it measured: memory and, on GPUs that are
    named, seconds.

    Example: vlrft plan-compare recipes/qwen2_5_vl_3b/detection_4x80g.sh output/v0 --gpus 4xH100
    """
    from swift_vlrft.memory import compare
    from swift_vlrft.memory.recipe_plan import plan_recipe

    log = compare.read_log(run)
    untracked = compare.only_seconds(log)
    measured = {} if untracked else compare.read_run(run)
    planned = plan_recipe(recipe, gpus, nodes=nodes, dataset=dataset, quick=quick)
    rows = compare.compared(planned.plan, measured)
    answers, most = compare.answers_in(log), planned.plan.settings.completion
    if answers and answers.mean > most:
        typer.echo(
            f"{run}: answers of {answers.mean:.0f} tokens, where {recipe} allows {most} "
            "(max_completion_length): is this its run?",
            err=True,
        )
    time = planned.time(answers)
    taken = compare.compared_seconds(time, compare.seconds_in(log))
    if as_json:
        print_json([*rows, *taken])
        return
    columns = ("phase", ">planned", ">allocated", ">reserved", ">error")
    drawn = table(*columns, title=f"planned and measured, GiB per GPU: {run.name}")
    for row in rows:
        drawn.add_row(*map(str, row.values()))
    if rows:
        show(drawn)
    if untracked:
        typer.echo("no memory in the log: run with VLRFT_TRACK_MEMORY=1 to compare it, too")
    if taken and time.speed:
        parts = ("part of a step", ">estimated", ">measured", ">error")
        drawn = table(*parts, title=f"seconds on {time.speed.kind}, answers as in the run")
        for row in taken:
            drawn.add_row(*map(str, row.values()))
        show(drawn)
    elif log:
        typer.echo(planned.speed.why)


def print_plan(planned: RecipePlan, name: str) -> None:
    """The table of phases, the verdict, and what was assumed."""
    from swift_vlrft.memory.estimate import ERROR

    plan, console = planned.plan, Console(emoji=False)
    console.print(_phases(planned, name, console.width))
    peak, colour = plan.peak, {"fits": "green", "tight": "yellow"}.get(plan.verdict, "red")
    where = f" in {peak.name}" if plan.verdict == "out of memory" else ""
    lines = [
        f"[{colour}]{plan.verdict}{where}[/{colour}]: peak {peak.total / 2**30:.1f} GiB in "
        f"{peak.name}, {plan.headroom / 2**30:+.1f} GiB of room, error {ERROR:.0%}"
    ]
    if plan.host:
        lines.append(f"host memory for offloading: {plan.host / 2**30:.0f} GiB a node")
    lines += [f"[red]{escape(failure)}[/red]" for failure in plan.failures]
    lines.append(
        f"activations, logits, temporaries: {plan.how}; weights, optimizer, gradients, gathers, "
        "KV cache: analytic; CUDA context, fragmentation, CUDA graphs: assumed"
    )
    lines += [f"assumed: {escape(note)}" for note in plan.settings.assumptions]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def _phases(planned: RecipePlan, name: str, width: int) -> Table:
    from swift_vlrft.memory.phases import COMPONENTS
    from swift_vlrft.memory.settings import GIB

    phases = planned.plan.phases
    used = [n for n in COMPONENTS if any(p.parts.get(n, 0) >= GIB / 20 for p in phases)]
    columns: dict[str, tuple[str, ...]] = {HEADINGS[name]: (name,) for name in used}
    if 13 + 5 * (len(columns) + 1) > width:
        columns = {head: names for head, names in columns.items() if names[0] not in REST}
        columns["rest"] = REST
    title = f"{name}: GiB on each GPU of {planned.gpus.gib:.1f} ({planned.gpus.name})"
    drawn = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    drawn.add_column("phase", no_wrap=True)
    for head in [*columns, HEADINGS["total"]]:
        drawn.add_column(head, justify="right", no_wrap=True)
    for phase in phases:
        short = phase.name.replace("old/reference log-probabilities", "log-probs")
        cells = [sum(phase.parts.get(n, 0) for n in names) for names in columns.values()]
        sizes = [_size(cell / GIB) for cell in [*cells, phase.total]]
        style = "bold" if phase is planned.plan.peak else ""
        drawn.add_row(short.replace("optimizer ", ""), *sizes, style=style)
    return drawn


def _size(value: float) -> str:
    return "" if value < 0.05 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def print_time(time: StepTime, notes: list[str], *, assumed: bool = True) -> None:
    """The step's tokens, operations and seconds; ``assumed``: nobody said how long answers are."""
    from swift_vlrft.memory.step_time import LABEL, PUBLISHED

    kind = f" on {time.speed.kind}" if time.speed else ""
    columns = ("phase", ">PFLOP", ">of it ViT", ">seconds", "bound by")
    drawn = table(*columns, title=f"an optimizer step{kind}")
    for phase in time.phases:
        work = [_petaflop(n) for n in (phase.operations.total, phase.operations.vit)]
        drawn.add_row(phase.name, *work, _seconds(phase.seconds), phase.bound or "")
    show(drawn)
    answers, lines = time.answers, list[str]()
    if time.seconds is not None:
        lines.append(f"a step: {_seconds(time.seconds)} s, {LABEL}")
    if time.rollout:
        lines[-1] += f"; {time.larger} is the larger half (rollout {_seconds(time.rollout)} s)"
        low, middle, high = PUBLISHED
        lines.append(
            f"published steps took {middle:g} times their estimate, half of them {low:g} to "
            f"{high:g} times"
        )
    tokens, lengths = f"{time.trained:,.0f} tokens trained", ""
    if time.generated:
        tokens = f"{time.prompts:,.0f} tokens of prompts read, {time.generated:,.0f} generated, "
        tokens += f"{time.trained:,.0f} trained"
        lengths = f"; answers of {answers.mean:.0f}"
        if answers.longest > answers.mean:
            lengths += f", the longest {answers.longest:.0f}, as assumed"
        else:
            lengths += ", as long as allowed"
            lengths += ": --answer-tokens says what is usual" if assumed else ""
    lines += [f"all GPUs: {tokens}{lengths}", *map(escape, notes)]
    for line in lines:
        Console(emoji=False).print(line, soft_wrap=True, highlight=False)


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return "<0.1" if 0 < value < 0.05 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _petaflop(operations: float) -> str:
    return f"{operations / 1e15:.3g}" if operations else ""


def print_changes(title: str, changes: list[Change]) -> None:
    """As a table, if there are any."""
    drawn = table("change", ">peak", "costs", title=title)
    for change in changes:
        if change.plan:
            peak = f"{change.plan.peak.total / 2**30:.1f} {change.plan.verdict}"
            drawn.add_row(change.label, peak, change.cost)
    if changes:
        show(drawn)
