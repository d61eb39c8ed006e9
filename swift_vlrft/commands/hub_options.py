"""What `vlrft data push` and `vlrft publish` have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from swift_vlrft.commands.output import printable

Hub = Annotated[str, typer.Option(help="hf, or modelscope (ms for short).")]
Repo = Annotated[
    str, typer.Option("--repo", "--to", help="ORG/NAME; created if it does not exist.")
]
Private = Annotated[bool, typer.Option("--private", help="Create a private one.")]
CardOnly = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write the card and its pictures to DIR to look at, and send nothing."
    ),
]


def show_card(files: Mapping[str, Path | bytes], notes: Sequence[str], folder: Path | None) -> bool:
    """Print the notes; with a folder, write the card there, and list what would go up."""
    console = Console(emoji=False, stderr=True)
    for note in notes:
        text = escape(printable(note))
        console.print(f"[yellow]note:[/yellow] {text}", soft_wrap=True, highlight=False)
    if folder is None:
        return False
    from swift_vlrft.hub.push import write_card_only

    for path in write_card_only(files, folder):
        typer.echo(path)
    others = [name for name, content in files.items() if isinstance(content, Path)]
    typer.echo(f"not sent; would go up besides: {', '.join(others)}")
    return True
