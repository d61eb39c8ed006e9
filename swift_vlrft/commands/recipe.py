"""``vlrft recipe`` finds the shipped recipes, and writes recipes for a model and GPUs."""

from pathlib import Path
from typing import Annotated, Any

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
    out: Annotated[Path, typer.Argument(help="File to write.")],
    model: Annotated[str, typer.Option(help="Hub id, checkpoint folder or config.json.")],
    task: Annotated[str, typer.Option(help=f"{', '.join(TASK_NAMES)}.")] = "detection",
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
    planned, change, backup = written.planned, written.change, written.backup
    if as_json:
        made = {"flags": change.flags, "cost": change.cost, "from": written.origin}
        files = {"written": str(out), "before": str(backup) if backup else None}
        print_json(planned.plan.as_dict() | made | files)
    else:
        print_memory(planned, out.name)
        before = f"; what was there before: {backup}" if backup else ""
        say(written.origin, f"written: {out}{before}")
