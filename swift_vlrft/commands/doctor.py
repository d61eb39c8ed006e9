"""``vlrft doctor``: is this machine ready?"""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape


def doctor(
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long to wait for each hub; engines get 12 times.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Look at Python, packages, GPUs, engines, hubs and disks; each problem with its remedy.

    Example: vlrft doctor

    Exit code 0: no problem; 1: problems. Notes (no GPU, a hub that does not answer) are no
    problems.
    """
    from swift_vlrft.diagnostics.doctor import PROBLEM, look_around

    looks = look_around(seconds)
    if as_json:
        typer.echo(json.dumps([asdict(look) for look in looks], indent=2))
    else:
        console = Console()
        colours = {"ok": "green", "note": "yellow", "problem": "red"}
        for look in looks:
            state = f"[{colours[look.state]}]{look.state:<8}[/{colours[look.state]}]"
            console.print(
                f"{state}{escape(look.what):<22} {escape(look.found)}",
                highlight=False,
                soft_wrap=True,
            )
            if look.remedy:
                console.print(f"{'':<8}-> {escape(look.remedy)}", highlight=False, soft_wrap=True)
    raise typer.Exit(int(any(look.state == PROBLEM for look in looks)))
