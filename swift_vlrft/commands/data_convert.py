"""``vlrft data convert``: any set becomes a Parquet folder."""

from typing import Annotated

import typer

from swift_vlrft.commands.data_shared import (
    AsJson,
    Columns,
    KeepGoing,
    Root,
    Source,
    Target,
    print_written,
    renamed,
    row_bar,
)


def convert(
    source: Source,
    folder: Target,
    split: Annotated[
        list[str] | None, typer.Option(help="Repeat for several; default: all that are there.")
    ] = None,
    root: Root = None,
    columns: Columns = "{}",
    task: Annotated[
        str | None, typer.Option(help="Task of the rows, if the set does not state it.")
    ] = None,
    keep_going: KeepGoing = False,
    as_json: AsJson = False,
) -> None:
    """Write a Parquet folder with a dataset card from Parquet, save_to_disk, JSON or COCO.

    Example: vlrft data convert lisa/train.json data/lisa --root lisa/images

    DST appears when it is complete; a killed run restarts from the first row.
    """
    from swift_vlrft.datasets.convert import convert_folder

    with row_bar() as (advance, _):
        written = convert_folder(
            source,
            folder,
            splits=split or (),
            root=root,
            rename=renamed(columns),
            task=task,
            keep_going=keep_going,
            on_row=advance,
        )
    print_written(written, as_json)
