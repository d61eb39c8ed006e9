"""What the commands that write a data set share: the bar, the end, the error."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from swift_vlrft.datasets.writer import Written

Bar = Callable[[int | None, int], None]
"""``bar(total, n)``: the total where it is known, and how many more rows are done."""

SHOWN = 10


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """A bar on the error stream; where that is no terminal, nothing."""
    console = Console(stderr=True)
    columns = ("rows", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task("rows", total=None)

        def bar(total: int | None, n: int) -> None:
            shown.update(task, advance=n, total=total if total else shown.tasks[0].total)

        yield bar


def fail(error: Exception) -> NoReturn:
    Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
    raise typer.Exit(2) from None


def renamed(columns: str) -> dict[str, str]:
    """What ``--columns`` says, as ms-swift's flag of that name does; ValueError where it is no JSON
    object.
    """
    try:
        rename = json.loads(columns)
        if not isinstance(rename, dict):
            raise ValueError
    except ValueError:
        expected = 'expected JSON such as {"question": "problem"}'
        raise ValueError(f"--columns {columns}: {expected}") from None
    return rename


def finish(
    written: Written, counts: Mapping[str, int], *, as_json: bool, notes: Sequence[str] = ()
) -> None:
    """Say what was written, and what not."""
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "folder": str(written.folder),
                    "rows": written.rows,
                    "shards": len([shard for shard in written.shards if shard.rows]),
                    "resumed": written.resumed,
                    "left_out": [vars(one) for one in written.left_out],
                    "counts": {name: n for name, n in counts.items() if n},
                    "notes": list(notes),
                }
            )
        )
        return
    for note in notes:
        typer.echo(f"note: {note}")
    for name, n in counts.items():
        if n:
            typer.echo(f"{n} {name}")
    for one in written.left_out[:SHOWN]:
        typer.echo(f"left out: {one.place}: {one.reason}")
    if written.left_out:
        typer.echo(f"{len(written.left_out)} rows left out: {written.folder / 'left_out.jsonl'}")
    resumed = f", {written.resumed} of them from the run before" if written.resumed else ""
    shards = len([shard for shard in written.shards if shard.rows])
    typer.echo(f"{written.folder}: {written.rows} rows{resumed}, {shards} shard(s), README.md")
