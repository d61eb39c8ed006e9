"""``vlrft doctor``: is this machine ready?"""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from swift_vlrft.commands.output import print_json


def doctor(
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Time limit per hub; imports get 20 times that."),
    ] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check Python, packages, GPUs, engines, hubs and disks; each problem with its remedy.

    Example: vlrft doctor

    Exit code 0: no problem; 1: problems. Notes (no GPU, a hub that does not answer) do not count.
    """
    from swift_vlrft.diagnostics.doctor import PROBLEM, run_checks

    checks = run_checks(seconds)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        console = Console(emoji=False)
        colours = {"ok": "green", "note": "yellow", "problem": "red"}
        for check in checks:
            state = f"[{colours[check.state]}]{check.state:<8}[/{colours[check.state]}]"
            console.print(
                f"{state}{escape(check.what):<22} {escape(check.found)}",
                highlight=False,
                soft_wrap=True,
            )
            if check.remedy:
                console.print(f"{'':<8}-> {escape(check.remedy)}", highlight=False, soft_wrap=True)
    raise typer.Exit(int(any(check.state == PROBLEM for check in checks)))
