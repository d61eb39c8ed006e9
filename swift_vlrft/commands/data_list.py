"""``vlrft data list``: the sets known by their hub id."""

import typer

from swift_vlrft.commands.data_shared import AsJson


def list_sources(as_json: AsJson = False) -> None:
    """Print the sets known by name: id, what each one is, task, box format and hub.

    Example: vlrft data list
    """
    from swift_vlrft.commands.output import print_json, show, table
    from swift_vlrft.datasets import SOURCES

    if as_json:
        # "frame" is what the column of a set is called, and the key of this output from the start.
        print_json([vars(source) | {"frame": source.box_format} for source in SOURCES])
        return
    drawn = table("--dataset", "what it is", "task", "boxes in", "hub", wraps=("what it is",))
    for source in SOURCES:
        hubs = ", ".join(source.hubs)
        drawn.add_row(source.hub_id, source.about, source.task, source.box_format or "-", hubs)
    show(drawn)
    typer.echo("Any of your own goes by its path: Parquet, save_to_disk, JSON, COCO.")
