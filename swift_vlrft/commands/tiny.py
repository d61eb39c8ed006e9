"""``vlrft tiny`` writes a small random checkpoint of a real architecture."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json, say
from swift_vlrft.families import FAMILIES
from swift_vlrft.files.environment import errors_only, hide_bars


def tiny(
    family: Annotated[str, typer.Argument(help=f"{', '.join(FAMILIES)}.")],
    directory: Annotated[Path, typer.Argument(help="Folder to write; it must not exist yet.")],
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a tiny random checkpoint with processor and chat template, offline, in seconds.

    Example: vlrft tiny qwen2_5_vl tiny_model && swift infer --model tiny_model

    A random model earns no reward; `vlrft try SET` leaves one that writes the set's format in
    runs/try/SET/start.
    """
    from swift_vlrft.tiny.checkpoint import write_tiny

    hide_bars()
    # DeepSpeed logs to stdout what a program would read as JSON.
    with redirect_stdout(sys.stderr), errors_only():
        parameters = write_tiny(family, directory, seed=seed)
    if as_json:
        print_json({"family": family, "directory": str(directory), "parameters": parameters})
    else:
        say(f"{directory}: {family}, {parameters / 1e6:.1f} M parameters")
