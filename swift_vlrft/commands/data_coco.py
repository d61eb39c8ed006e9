"""``vlrft data coco``: COCO's or LVIS's annotations become ViRFT rows."""

from pathlib import Path
from typing import Annotated

import typer


def coco(
    instances: Annotated[Path, typer.Argument(help="instances_*.json, or lvis_v1_*.json.")],
    images: Annotated[Path, typer.Argument(help="Folder of the images.")],
    folder: Annotated[Path, typer.Argument(metavar="DST", help="Parquet folder to write.")],
    categories: Annotated[
        list[str],
        typer.Option(
            help="Names, or lists: coco80, coco-base65, coco-novel15, virft-coco8, lvis-rare6, "
            "lvis-rare13; repeat, or put commas between."
        ),
    ],
    shots: Annotated[
        int | None, typer.Option(min=1, help="Images per category; default: all.")
    ] = None,
    negatives: Annotated[
        float, typer.Option(min=0, help='Rows with gold "No Objects" per row with boxes.')
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Picks images and order.")] = 0,
    split: Annotated[str, typer.Option(help="Name of the split that is written.")] = "train",
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave bad images out instead of stopping.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Build a detection set from COCO annotations: one category a prompt, boxes 0 to 1000.

    Example: vlrft data coco instances_train2017.json train2017 data/coco8
    --categories virft-coco8 --shots 4

    A killed run goes on where it was when it is started again.
    """
    from swift_vlrft.commands.progress import fail, finish, progress_bar
    from swift_vlrft.datasets.build import build_folder

    try:
        with progress_bar() as bar:
            written, counts = build_folder(
                instances,
                images,
                folder,
                categories=categories,
                shots=shots,
                negatives=negatives,
                seed=seed,
                split=split,
                keep_going=keep_going,
                progress=bar,
            )
    except ValueError as error:
        fail(error)
    finish(written, counts, as_json=as_json)
