"""What the commands of ``vlrft data`` share: options, the progress bar, the last lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from swift_vlrft.datasets.writer import Written

Source = Annotated[Path, typer.Argument(metavar="SRC", help="A set on disk, in any form.")]
Target = Annotated[Path, typer.Argument(metavar="DST", help="Parquet folder to write.")]
Root = Annotated[
    Path | None, typer.Option(help="Folder of the images that relative paths start from.")
]
Columns = Annotated[
    str, typer.Option(help='Rename columns, as ms-swift does: {"question": "problem"}')
]
KeepGoing = Annotated[
    bool,
    typer.Option("--keep-going", help="Leave bad rows, images and shards out, and list them."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

SHOWN = 10


@contextmanager
def row_bar() -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """A bar on the error stream: functions to call with more rows done, and with the total, if it
    is known. If that stream is not a terminal, nothing is shown.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = ("rows", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=None)
        yield (lambda n: bar.update(task, advance=n)), (lambda n: bar.update(task, total=n))


def renamed(columns: str) -> dict[str, str]:
    """The value of ``--columns``, in the form of ms-swift's flag of that name."""
    try:
        rename = json.loads(columns)
        if not isinstance(rename, dict) or not all(isinstance(v, str) for v in rename.values()):
            raise ValueError
    except ValueError:
        expected = 'expected JSON such as {"question": "problem"}'
        raise ValueError(f"--columns {columns}: {expected}") from None
    return rename


def print_written(written: Written, as_json: bool) -> None:
    """Print what was written and what was left out."""
    if as_json:
        result = {
            "folder": str(written.folder),
            "rows": written.rows,
            "shards": written.shards,
            "left_out": [vars(one) for one in written.left_out],
            "counts": {name: n for name, n in written.counts.items() if n},
            "notes": written.notes,
        }
        typer.echo(json.dumps(result))
        return
    lines = [f"note: {note}" for note in written.notes]
    lines += [f"{n} {name}" for name, n in written.counts.items() if n]
    lines += [f"left out: {one}" for one in written.left_out[:SHOWN]]
    if written.left_out:
        lines.append(f"{len(written.left_out)} rows left out: {written.folder / 'left_out.jsonl'}")
    lines.append(f"{written.folder}: {written.rows} rows, {written.shards} shard(s), README.md")
    typer.echo("\n".join(lines))
