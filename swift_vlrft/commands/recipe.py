"""``vlrft recipe`` finds the shipped recipes, and writes recipes for a model and GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from swift_vlrft.commands.output import CONTEXT, print_json, say
from swift_vlrft.commands.plan import (
    DatasetOption,
    GpusOption,
    JsonOption,
    NodesOption,
    print_memory,
)
from swift_vlrft.recipe.shipped import shipped_recipes
from swift_vlrft.rewards import TASK_NAMES

if TYPE_CHECKING:
    from swift_vlrft.memory.new_recipe import NewRecipe

OutFile = Annotated[Path, typer.Argument(help="File to write.")]


class _Recipes(TyperGroup):
    """A word that is not a command is the name of a recipe: `vlrft recipe MODEL/RECIPE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and not args[0].startswith("-")):
            args = ["path", *args]
        return super().parse_args(ctx, args)


recipe = typer.Typer(
    cls=_Recipes,
    context_settings=CONTEXT,
    help="List recipes, print a recipe's path, write a recipe. Example: vlrft recipe demo_cpu",
)


@recipe.command()
def path(
    name: Annotated[
        str | None, typer.Argument(help="MODEL/RECIPE, with or without .sh. Default: list all.")
    ] = None,
) -> None:
    """Print the path of a recipe, or the names of all; `vlrft recipe NAME` does the same.

    Example: bash "$(vlrft recipe qwen2_5_vl_3b/detection_4x80g)"
    """
    known = shipped_recipes()
    if name is not None and name.removesuffix(".sh") not in known:
        raise ValueError(f"no recipe {name}; known: {', '.join(known)}")
    typer.echo("\n".join(known) if name is None else known[name.removesuffix(".sh")])


@recipe.command()
def new(
    out: OutFile,
    model: Annotated[str, typer.Option(help="Hub id, checkpoint folder or config.json.")],
    task: Annotated[
        str,
        typer.Option(help=f"{', '.join(TASK_NAMES)}."),
    ] = "detection",
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    dataset: DatasetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a recipe for a model, a task and GPUs by changing the nearest tested recipe to fit.

    Example: vlrft recipe new new.sh --model Qwen/Qwen2.5-VL-3B-Instruct --gpus 8x24

    Exit code 2: no known change makes it fit, or the input cannot be used.
    """
    from swift_vlrft.memory.new_recipe import new_recipe

    written = new_recipe(out, model, task, gpus, nodes=nodes, dataset=dataset)
    _show(written, out, as_json)


def _show(recipe: NewRecipe, out: Path, as_json: bool) -> None:
    """What was written, from which recipe, and its plan."""
    backup = str(recipe.backup) if recipe.backup else None
    if as_json:
        where = {"from": recipe.origin, "written": str(out), "before": backup}
        change = {"flags": recipe.change.flags, "cost": recipe.change.cost}
        print_json(recipe.planned.plan.as_dict() | change | where)
        return
    print_memory(recipe.planned, out.name)
    say(recipe.origin, f"written: {out}" + (f"; what was there before: {backup}" if backup else ""))
