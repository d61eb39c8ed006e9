"""``vlrft recipe``: where the shipped recipes are, and recipes written for a model and GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from swift_vlrft.commands.output import CONTEXT, print_json, say
from swift_vlrft.commands.plan import (
    DatasetOption,
    GpusOption,
    JsonOption,
    NodesOption,
    QuickOption,
    RecipeFile,
    print_parts,
)
from swift_vlrft.files.shipped import shipped_file

OutFile = Annotated[Path, typer.Argument(help="Where the recipe is written.")]


class _Recipes(TyperGroup):
    """A word that is not a command is the name of a recipe: `vlrft recipe MODEL/RECIPE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and not args[0].startswith("-")):
            args = ["path", *args]
        return super().parse_args(ctx, args)


recipe = typer.Typer(
    cls=_Recipes,
    context_settings=CONTEXT,
    help="Print the path of a recipe (`vlrft recipe MODEL/RECIPE`) or the names of all; write one.",
)


@recipe.command()
def path(
    name: Annotated[
        str | None, typer.Argument(help="MODEL/RECIPE, with or without .sh; none: list them.")
    ] = None,
) -> None:
    """Print the path of a recipe, or the names of all: `vlrft recipe` without a command.

    Example: bash "$(vlrft recipe qwen2_5_vl_3b/detection_4x80g)"
    """
    folder = shipped_file("recipes", "demo_cpu.sh").parent
    known = {
        str(file.relative_to(folder).with_suffix("")): file for file in sorted(folder.rglob("*.sh"))
    }
    if name is not None and name.removesuffix(".sh") not in known:
        raise ValueError(f"no recipe {name}; known: {', '.join(known)}")
    typer.echo("\n".join(known) if name is None else known[name.removesuffix(".sh")])


@recipe.command()
def new(
    out: OutFile,
    model: Annotated[str, typer.Option(help="Hub id, checkpoint folder or config.json.")],
    task: Annotated[
        str,
        typer.Option(
            help="detection, grounding, pointing, classification, counting, choice, yes_no, "
            "number, math, ocr, list or ordering."
        ),
    ] = "detection",
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    dataset: DatasetOption = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a recipe for a model, a task and GPUs that fits.

    Example: vlrft recipe new new.sh --model Qwen/Qwen2.5-VL-3B-Instruct --gpus 8x24

    Exit code 2: no known change makes it fit, or the input cannot be used.
    """
    from swift_vlrft.memory.recipe_plan import new_plan
    from swift_vlrft.report.plan_text import memory_parts

    planned, kept = new_plan(out, model, task, gpus, nodes=nodes, dataset=dataset, quick=quick)
    if as_json:
        print_json(planned.plan.as_dict() | _written(out, kept))
        return
    print_parts(memory_parts(planned, out.name, Console().width))
    _print_written(out, kept)
    if dataset is None:
        say("put your data set in place of DATASET")


@recipe.command()
def apply(
    recipe: RecipeFile,
    out: OutFile,
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    dataset: DatasetOption = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a script that runs a recipe with the cheapest change that makes it fit.

    Example: vlrft recipe apply detection_4x80g.sh smaller.sh --gpus 4x24

    Exit code 2: it fits as it is, no known change makes it fit, or the input cannot be used.
    """
    from swift_vlrft.memory.recipe_plan import apply_change, plan_recipe
    from swift_vlrft.report.plan_text import change_parts

    planned = plan_recipe(recipe, gpus, nodes=nodes, dataset=dataset, quick=quick)
    change, kept = apply_change(planned, out)
    if as_json:
        print_json(change.as_dict() | _written(out, kept))
        return
    title = f"{recipe.name} on {planned.gpus.count} x {planned.gpus.name}"
    print_parts(change_parts(title, [change]))
    _print_written(out, kept)
    if planned.environment:
        say(f"the plan depends on your environment: run {out.name} with {planned.environment}")


def _written(out: Path, kept: Path | None) -> dict[str, str | None]:
    return {"written": str(out), "before": str(kept) if kept else None}


def _print_written(out: Path, kept: Path | None) -> None:
    say(f"written: {out}" + (f"; what was there before: {kept}" if kept else ""))
