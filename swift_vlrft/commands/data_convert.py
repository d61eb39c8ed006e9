"""``vlrft data convert``: any set becomes a Parquet folder."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A set on disk, in any form.")],
    folder: Annotated[Path, typer.Argument(metavar="DST", help="Parquet folder to write.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Repeat for several; default: all that are there.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the images that relative paths start from.")
    ] = None,
    columns: Annotated[
        str, typer.Option(help='Rename columns, as ms-swift does: {"question": "problem"}')
    ] = "{}",
    task: Annotated[
        str | None, typer.Option(help="Task of the rows, where the set does not state it.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave bad rows and shards out, and list them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a Parquet folder with a dataset card from Parquet, save_to_disk, JSON or COCO.

    Example: vlrft data convert lisa/train.json data/lisa --root lisa/images

    A killed run goes on where it was when it is started again; DST appears when it is whole.
    """
    from swift_vlrft.commands.progress import fail, finish, progress_bar, renamed
    from swift_vlrft.datasets.convert import convert_folder

    counts: Counter[str] = Counter()
    notes: list[str] = []
    try:
        with progress_bar() as bar:
            written = convert_folder(
                source,
                folder,
                splits=split or (),
                root=root,
                rename=renamed(columns),
                task=task,
                keep_going=keep_going,
                progress=bar,
                counts=counts,
                notes=notes,
            )
    except (ValueError, OSError) as error:
        fail(error)
    finish(written, counts, as_json=as_json, notes=notes)
