"""``vlrft doctor``: is this machine ready?"""

from dataclasses import asdict
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json, say_styled


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check Python, packages, GPUs, engines, hubs and disks; print a remedy for each problem.

    Example: vlrft doctor

    Exit code 0: no problem; 1: problems. Notes (no GPU, a hub that does not answer) do not count.
    """
    from swift_vlrft.diagnostics.doctor import PROBLEM, run_checks

    checks = run_checks()
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        colours = {"ok": "green", "note": "yellow", "problem": "red"}
        for check in checks:
            state = f"{check.state:<8}", colours[check.state]
            say_styled(state, f"{check.what:<22} {check.found}")
            if check.remedy:
                say_styled(f"{'':<8}-> {check.remedy}")
    raise typer.Exit(int(any(check.state == PROBLEM for check in checks)))
