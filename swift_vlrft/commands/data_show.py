"""``vlrft data show``: rows as a page for the eye."""

from pathlib import Path
from typing import Annotated

import typer


def show(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A set on disk, in any form.")],
    rows: Annotated[int, typer.Option(min=1, help="How many rows to show.")] = 12,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("page.html"),
    seed: Annotated[int, typer.Option(help="Another seed, other rows.")] = 0,
    split: Annotated[str, typer.Option(help="Which split.")] = "train",
    root: Annotated[
        Path | None, typer.Option(help="Folder of the images that relative paths start from.")
    ] = None,
) -> None:
    """Draw rows with their gold boxes on one HTML page that needs no network.

    Example: vlrft data show data/coco8 --rows 12 --out page.html
    """
    from swift_vlrft.commands.progress import fail
    from swift_vlrft.datasets.page import page_of, sample
    from swift_vlrft.datasets.read import read_rows

    try:
        found, total = sample(
            read_rows(source, split=split, root=root, keep_going=True), rows, seed
        )
        if not found:
            raise ValueError(f"{source} has no rows")
        beside = out.with_name(out.name + ".writing")
        out.parent.mkdir(parents=True, exist_ok=True)
        page = page_of(found, source.name, total)
        beside.write_text(page, encoding="utf-8", errors="backslashreplace")
        beside.rename(out)
    except (ValueError, OSError) as error:
        fail(error)
    typer.echo(f"{out}: {len(found)} of {total} rows of {source}")
