"""``vlrft data list``: the sets known by their hub id."""

import json
from typing import Annotated

import typer

PATHS = (
    "Parquet with image, problem, solution",
    "folders of save_to_disk",
    "JSON Lines of VLM-R1 (RefCOCO)",
    "JSON of LISA",
    "COCO's instances_*.json",
    "Parquet with objects",
)


def list_sources(
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Print the sets known by name: id, task, frame, and what each one is.

    Example: vlrft data list
    """
    from rich.console import Console
    from rich.table import Table

    from swift_vlrft.datasets import SOURCES

    if as_json:
        typer.echo(json.dumps([vars(source) for source in SOURCES], indent=2))
        return
    table = Table()
    for heading in ("--dataset", "task", "boxes in", "known on"):
        table.add_column(heading, overflow="fold")
    for source in SOURCES:
        hubs = ", ".join(source.hubs)
        table.add_row(source.hub_id, source.task, source.frame or "-", hubs)
    Console().print(table)
    typer.echo(f"Read from a path, besides: {', '.join(PATHS)}. See README, Data.")
