"""``vlrft data coco``: COCO's or LVIS's annotations become ViRFT rows."""

from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.data_shared import AsJson, KeepGoing, Target, print_written, row_bar


def coco(
    instances: Annotated[Path, typer.Argument(help="instances_*.json, or lvis_v1_*.json.")],
    images: Annotated[Path, typer.Argument(help="Folder of the images.")],
    folder: Target,
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
    keep_going: KeepGoing = False,
    as_json: AsJson = False,
) -> None:
    """Build a detection set from COCO annotations: one category a prompt, boxes 0 to 1000.

    Example: vlrft data coco instances_train2017.json train2017 data/coco8
    --categories virft-coco8 --shots 4
    """
    from swift_vlrft.datasets.build import build_folder

    with row_bar() as (advance, total):
        written = build_folder(
            instances,
            images,
            folder,
            categories=categories,
            shots=shots,
            negatives=negatives,
            seed=seed,
            split=split,
            keep_going=keep_going,
            on_row=advance,
            on_total=total,
        )
    print_written(written, as_json)
