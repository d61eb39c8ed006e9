"""``vlrft doctor``: is this machine ready?"""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from swift_vlrft.commands.output import print_json, printable


def doctor(
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Time limit per hub; imports get 20 times that."),
    ] = 3.0,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,...",
            help="Instead, test the path between nodes: run it on each at the same time, with the "
            "same list. Listens at this node's entry for --wait seconds.",
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=1, max=600, help="With --peers: seconds that the others get to come."),
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check Python, packages, GPUs, engines, hubs and disks; each problem with its remedy.

    Example: vlrft doctor

    Example: vlrft doctor --peers 10.0.0.1:29500,10.0.0.2:29500

    Exit code 0: no problem; 1: problems. Notes (no GPU, a hub that does not answer) do not count.
    """
    from swift_vlrft.diagnostics.doctor import PROBLEM, run_checks

    if peers is None:
        checks = run_checks(seconds)
    else:
        from swift_vlrft.diagnostics.peers import check_peers, parse_peers

        checks = check_peers(parse_peers(peers), wait)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        console = Console(emoji=False)
        colours = {"ok": "green", "note": "yellow", "problem": "red"}
        for check in checks:
            state = f"[{colours[check.state]}]{check.state:<8}[/{colours[check.state]}]"
            console.print(
                f"{state}{escape(printable(check.what)):<22} {escape(printable(check.found))}",
                highlight=False,
                soft_wrap=True,
            )
            if check.remedy:
                console.print(f"{'':<8}-> {escape(check.remedy)}", highlight=False, soft_wrap=True)
    raise typer.Exit(int(any(check.state == PROBLEM for check in checks)))
