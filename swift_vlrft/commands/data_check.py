"""``vlrft data check``: is every row of a set fit to train on?"""

from pathlib import Path
from typing import Annotated

import typer


def check(
    source: Annotated[Path, typer.Argument(help="A set on disk, in any form.")],
) -> None:
    """Run every row: image, prompt, solution, boxes, and the gold answer under its task's rewards.

    Example: vlrft data check data/my_set
    """
    from swift_vlrft.datasets.check import check_parquet
    from swift_vlrft.datasets.source import DataError

    try:
        rows, task = check_parquet(source)
    except DataError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{source}: {rows} rows of task {task}, every gold solution reads.")
