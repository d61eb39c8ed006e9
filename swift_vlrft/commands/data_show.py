"""``vlrft data show``: rows as an HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.data_shared import Root, Source


def show(
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
    found, total = sample(read, rows, seed)
    if not found:
        raise ValueError(f"{source} has no rows")
    write_atomically(out, page_of(found, source.name, total))
    typer.echo(f"{out}: {len(found)} of {total} rows of {source}")
