"""``vlrft recipe``: where the recipes lie, also after `pip install`."""

from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.files.shipped import shipped_file


def recipe(
    name: Annotated[
        str | None, typer.Argument(help="MODEL/RECIPE, with or without .sh; none: list them.")
    ] = None,
) -> None:
    """Print the path of a recipe, or the names of all.

    Example: bash "$(vlrft recipe qwen2_5_vl_3b/detection_4x80g)"
    """
    folder = shipped_file("recipes", "demo_cpu.sh").parent
    known = {_name(path, folder): path for path in sorted(folder.rglob("*.sh"))}
    if name is None:
        typer.echo("\n".join(known))
    elif (path := known.get(name.removesuffix(".sh"))) is not None:
        typer.echo(path)
    else:
        typer.echo(f"error: no recipe {name}; known: {', '.join(known)}", err=True)
        raise typer.Exit(2)


def _name(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder).with_suffix(""))
