"""`vlrft data push` and `vlrft publish` share these options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json, say

Hub = Annotated[str, typer.Option(help="hf, or modelscope (ms for short).")]
Repo = Annotated[
    str, typer.Option("--repo", "--to", help="ORG/NAME; created if it does not exist.")
]
Private = Annotated[bool, typer.Option("--private", help="Create a private repository.")]
CardOnly = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write the card to DIR to look at, and send nothing."),
]


def show_card(files: Mapping[str, Path | bytes], folder: Path, as_json: bool) -> None:
    """Write the card into the folder, and list what would go up."""
    from swift_vlrft.hub.push import write_card_only

    card, besides = write_card_only(files, folder), [name for name in files if name != "README.md"]
    if as_json:
        print_json({"card": str(card), "sent": False, "files": sorted(files)})
    else:
        say(card, f"not sent; these files would go up as well: {', '.join(besides)}")
