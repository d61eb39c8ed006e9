"""``vlrft data`` does everything about data sets; ``check`` is in data_check.py."""

from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.data_check import AsJson, Columns, Plugins, Root, check, renamed
from swift_vlrft.commands.hub_options import CardOnly, Hub, Private, Repo, show_card
from swift_vlrft.commands.output import print_json, print_written, say, show, table
from swift_vlrft.evaluation.settings import CATEGORIES_HELP

Source = Annotated[Path, typer.Argument(metavar="SRC", help="A set on disk, in any form.")]
Target = Annotated[Path, typer.Argument(metavar="DST", help="Parquet folder to write.")]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Leave bad rows and images out, and list them.")
]

data = typer.Typer(
    help="Check, convert, show and publish data sets. Example: vlrft data check data/my_set",
    no_args_is_help=True,
)
data.command()(check)


@data.command()
def coco(
    instances: Annotated[Path, typer.Argument(help="instances_*.json, or lvis_v1_*.json.")],
    images: Annotated[Path, typer.Argument(help="Folder of the images.")],
    folder: Target,
    categories: Annotated[
        list[str] | None, typer.Option(help=f"{CATEGORIES_HELP} Default: all of the file.")
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(help="Share of the images, such as 0.1, that becomes the split test."),
    ] = None,
    boxes: Annotated[
        str | None,
        typer.Option(
            help="How the file writes a box: xywh (default), xyxy (corners), cxcywh or yxyx."
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="Unit of its numbers: pixels (default), unit (shares), percent or norm1000."
        ),
    ] = None,
    per_category: Annotated[
        bool,
        typer.Option(
            "--per-category", help="A row for each category of an image, in ViRFT's prompt."
        ),
    ] = False,
    shots: Annotated[
        int | None,
        typer.Option(min=1, help="Images per category, with --per-category; default: all."),
    ] = None,
    negatives: Annotated[
        float, typer.Option(min=0, help='Rows with gold "No Objects" per row with boxes.')
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of images, order and held-out split.")] = 0,
    split: Annotated[
        str | None, typer.Option(help="Name of the split that is written. Default: train.")
    ] = None,
    keep_going: KeepGoing = False,
    as_json: AsJson = False,
) -> None:
    """Build a detection set from COCO annotations: a row for each image, asking for all categories.

    Example: vlrft data coco instances.json images data/mine --held-out 0.1

    An image with a crowd region or a box without area of an asked category makes no row, nor does
    an image without boxes, unless --negatives asks for it. A box outside its image is an error.
    """
    from swift_vlrft.datasets.build import build_folder
    from swift_vlrft.geometry.readings import reading_named

    written = build_folder(
        instances,
        images,
        folder,
        categories=categories or (),
        per_category=per_category,
        reading=reading_named(boxes or "xywh", unit or "pixels") if boxes or unit else None,
        shots=shots,
        negatives=negatives,
        held_out_share=held_out,
        seed=seed,
        split=split,
        keep_going=keep_going,
    )
    print_written(written, as_json)


@data.command("list")
def list_sources(as_json: AsJson = False) -> None:
    """Print the sets known by name: id, content, task, box format and hub.

    Example: vlrft data list
    """
    from swift_vlrft.datasets import SOURCES

    if as_json:
        # "frame" is what the column of a set is called, and the key of this output from the start.
        return print_json([vars(source) | {"frame": source.box_format} for source in SOURCES])
    drawn = table("--dataset", "what it is", "task", "boxes in", "hub", wraps=("what it is",))
    for source in SOURCES:
        hubs = ", ".join(source.hubs)
        drawn.add_row(source.hub_id, source.about, source.task, source.box_format or "-", hubs)
    show(drawn)
    say("Name a set of your own by its path: Parquet, save_to_disk, JSON, COCO or YOLO.")


@data.command()
def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `vlrft data convert`.")],
    hub: Hub,
    repo: Repo,
    private: Private = False,
    licence: Annotated[
        str | None,
        typer.Option(
            "--license",
            help="Licence of the images and annotations, as the hub names it, such as cc-by-4.0.",
        ),
    ] = None,
    card_only: CardOnly = None,
    as_json: AsJson = False,
) -> None:
    """Publish a converted folder with a card; afterwards --dataset ORG/NAME trains on it.

    Example: HF_TOKEN=... vlrft data push data/coco8 --hub hf --repo me/coco8

    A README.md in the folder goes up as the card.
    The token is taken from HF_TOKEN or MODELSCOPE_API_TOKEN, and never shown.
    """
    from swift_vlrft.hub.cards import dataset_files
    from swift_vlrft.hub.push import check_target, upload

    hub = check_target(hub, repo)
    files = dataset_files(folder, hub, repo, licence)
    if card_only is not None:
        return show_card(files, card_only, as_json)
    page = upload(files, hub, repo, "dataset", licence=licence, private=private)
    dataset = f"{'hf' if hub == 'hf' else 'ms'}::{repo}"
    if as_json:
        print_json({"page": page, "dataset": dataset})
    else:
        say(page, f"train on it with: --dataset {dataset}")


@data.command()
def convert(
    source: Source,
    folder: Target,
    split: Annotated[
        list[str] | None, typer.Option(help="Split to convert; repeat for several. Default: all.")
    ] = None,
    root: Root = None,
    columns: Columns = "{}",
    external_plugins: Plugins = None,
    task: Annotated[
        str | None, typer.Option(help="Task of the rows, if the set does not state it.")
    ] = None,
    boxes: Annotated[
        str | None,
        typer.Option(
            help="How SRC writes a box in a column of boxes: xywh, xyxy (corners), cxcywh or yxyx. "
            "Default: as is usual for its form."
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="Unit of its numbers: pixels, unit (shares), percent or norm1000; for boxes in "
            "the column solution, where a row has no column frame."
        ),
    ] = None,
    ask: Annotated[
        str, typer.Option(help="A sentence for the end of every prompt: the form of the answer.")
    ] = "",
    keep_going: KeepGoing = False,
    as_json: AsJson = False,
) -> None:
    """Write a Parquet folder from Parquet, save_to_disk, JSON, COCO or YOLO.

    Example: vlrft data convert lisa/train.json data/lisa --root lisa/images

    Example: vlrft data convert data/signs data/mine --boxes cxcywh --unit unit

    DST appears when it is complete; a killed run restarts from the first row.
    """
    from swift_vlrft.datasets.convert import convert_folder
    from swift_vlrft.datasets.schemas import load_forms

    load_forms(external_plugins or ())
    written = convert_folder(
        source,
        folder,
        splits=split or (),
        root=root,
        rename=renamed(columns),
        task=task,
        boxes=boxes,
        unit=unit,
        ask=ask,
        keep_going=keep_going,
    )
    print_written(written, as_json)


@data.command("show")
def show_rows(
    source: Source,
    rows: Annotated[int, typer.Option(min=1, help="How many rows to show.")] = 12,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("page.html"),
    seed: Annotated[int, typer.Option(help="Seed that picks the rows.")] = 0,
    split: Annotated[str, typer.Option(help="Which split.")] = "train",
    root: Root = None,
) -> None:
    """Draw rows with their gold boxes on one HTML page that needs no network.

    Example: vlrft data show data/coco8 --rows 12 --out page.html
    """
    from swift_vlrft.datasets.read import read_rows
    from swift_vlrft.files.writing import write_atomically
    from swift_vlrft.report.set_page import page_of, sample

    read = read_rows(source, split=split, root=root, keep_going=True)
    drawn, total = sample(read, rows, seed)
    if not drawn:
        raise ValueError(f"{source} has no rows")
    write_atomically(out, page_of(drawn, source.name, total))
    say(f"{out}: {len(drawn)} of {total} rows of {source}")
