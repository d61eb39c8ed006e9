"""``vlrft plan``: does a run fit, which phase would fail, and what is to be changed?

vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4x80
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from swift_vlrft.commands.output import TextTable, plain, print_json, say_styled, show, table
from swift_vlrft.commands.recipe_words import flags_after, no_flag

if TYPE_CHECKING:
    from swift_vlrft.report.plan_text import Grid, Line

RecipeFile = Annotated[
    Path,
    typer.Argument(help="Script, YAML or JSON of ms-swift, or a name that `vlrft recipe` prints."),
]
GpusOption = Annotated[
    str | None,
    typer.Option("--gpus", help="GPUs per node: 4x80 (GB), 4xA100-80G, 8xH20. Default: all here."),
]
NodesOption = Annotated[
    int | None, typer.Option("--nodes", min=1, help="Nodes. Default: the recipe's NNODES, else 1.")
]
DatasetOption = Annotated[
    Path | None,
    typer.Option("--dataset", help="Parquet or JSON Lines: plan for its longest row."),
]
RunOption = Annotated[
    bool, typer.Option("--run", help="Let bash read the script; nothing in it can start.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def plan(
    context: typer.Context,
    recipe: RecipeFile,
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    dataset: DatasetOption = None,
    run: RunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict the memory of a GRPO run per GPU and phase, before anything is downloaded.

    Example: vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4xH100

    Flags of ms-swift after the recipe are planned as `bash RECIPE --flag value` runs them.

    Exit code 0: it fits; 1: out of memory; 2: the input cannot be used.
    """
    from swift_vlrft.memory.recipe_plan import plan_recipe
    from swift_vlrft.report.plan_text import plan_parts

    no_flag(recipe)
    arguments = flags_after(context.args, context)
    planned = plan_recipe(recipe, gpus, arguments=arguments, nodes=nodes, dataset=dataset, run=run)
    if as_json:
        shown, known = planned.plan.as_dict(), planned.gpus
        shown |= {
            "recipe": str(recipe),
            "gpus": {"count": known.count, "card": known.name, "gib": round(known.gib, 2)},
            "changes": [
                change.as_dict() | asdict(planned.run_with(change)) for change in planned.changes()
            ],
            "raise": [change.as_dict() for change in planned.headroom()],
        }
        print_json(shown)
    else:
        print_parts(plan_parts(planned, recipe.name, Console().width))
    raise typer.Exit(0 if planned.plan.fits else 1)


def print_parts(parts: Iterable[Grid | Line]) -> None:
    """Print the table of phases as wide as the terminal, any other as wide as it is."""
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
