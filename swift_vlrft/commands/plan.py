"""``vlrft plan``: does a run fit, which phase would fail, what to change.

vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4x80
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from swift_vlrft.commands.output import TextTable, plain, print_json, say, say_styled, show, table

if TYPE_CHECKING:
    from swift_vlrft.report.plan_text import Grid, Line

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
    from swift_vlrft.report.plan_text import plan_parts, time_notes

    planned = plan_recipe(recipe, gpus, nodes=nodes, dataset=dataset, quick=quick)
    if plot is not None:
        from swift_vlrft.memory.plot import draw

        draw(planned.plan, plot, title=recipe.name)
    if as_json:
        time = planned.time(answers_of(planned.plan.settings, answer_tokens)).as_dict()
        found, known = planned.plan.as_dict(), planned.gpus
        found |= {
            "recipe": str(recipe),
            "gpus": {"count": known.count, "card": known.name, "gib": round(known.gib, 2)},
            "changes": [change.as_dict() for change in planned.changes()],
            "raise": [change.as_dict() for change in planned.headroom()],
            "time": time | {"assumptions": time_notes(planned, answer_tokens)},
        }
        print_json(found)
    else:
        print_parts(plan_parts(planned, recipe.name, answer_tokens, Console().width))
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
        say(
            f"{run}: answers of {answers.mean:.0f} tokens, where {recipe} allows {most} "
            "(max_completion_length): is this its run?",
            error=True,
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
        say("no memory in the log: run with VLRFT_TRACK_MEMORY=1 to compare it, too")
    if taken and time.speed:
        parts = ("part of a step", ">estimated", ">measured", ">error")
        drawn = table(*parts, title=f"seconds on {time.speed.kind}, answers as in the run")
        for row in taken:
            drawn.add_row(*map(str, row.values()))
        show(drawn)
    elif log:
        say(planned.speed.why)


def print_parts(parts: Iterable[Grid | Line]) -> None:
    """The table of phases as wide as the terminal, any other as wide as it is."""
    from swift_vlrft.report.plan_text import Line

    console = Console(emoji=False)
    for part in parts:
        if isinstance(part, Line):
            say_styled((part.marked, part.colour) if part.colour else "", part.text)
        elif part.bold is None:
            drawn = table(*part.columns, title=part.title)
            for row in part.rows:
                drawn.add_row(*row)
            show(drawn)
        else:
            console.print(_phases(part))


def _phases(part: Grid) -> TextTable:
    title = plain(part.title)
    drawn = TextTable(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for head in part.columns:
        right = head.startswith(">")
        drawn.add_column(head.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    for number, row in enumerate(part.rows):
        drawn.add_row(*row, style="bold" if number == part.bold else "")
    return drawn
