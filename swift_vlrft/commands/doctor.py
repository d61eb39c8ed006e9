"""``vlrft doctor``: is this machine ready?"""

from dataclasses import asdict
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json, say_styled


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
        colours = {"ok": "green", "note": "yellow", "problem": "red"}
        for check in checks:
            state = f"{check.state:<8}", colours[check.state]
            say_styled(state, f"{check.what:<22} {check.found}")
            if check.remedy:
                say_styled(f"{'':<8}-> {check.remedy}")
    raise typer.Exit(int(any(check.state == PROBLEM for check in checks)))
