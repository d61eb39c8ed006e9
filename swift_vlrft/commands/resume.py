"""``vlrft resume`` prints the command with which a run goes on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json, say
from swift_vlrft.files import records


def resume(
    run_dir: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR",
            help="A run's --output_dir, one of its folders v0-DATE-TIME, or a checkpoint.",
        ),
    ],
    run: Annotated[bool, typer.Option("--run", help="Run the commands instead.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all as JSON; run nothing.")
    ] = False,
) -> None:
    """Print the commands that go on with a run from its newest complete checkpoint.

    Example: vlrft resume output/qwen2_5_vl_3b_detection

    They have the run's own flags, variables and folder, as the plugin wrote them into its
    resume.sh, without secrets. Notes go to the error stream. Exit code 0: printed, or the run has
    done its last step; 1: it would run differently here, and --run does not start it; 2: it is
    still running, or its command is not known; 3: no complete checkpoint, so start again. With
    --run the exit code is the run's own.
    """
    from swift_vlrft.recipe.resume import environment, resume_plan

    plan = resume_plan(run_dir)
    if as_json:
        print_json(records.as_json(plan))
        raise typer.Exit(int(bool(plan.problems) and not plan.ended))
    if plan.ended:
        say(f"{plan.run} has ended: step {plan.step} of {plan.last_step}", error=True)
        raise typer.Exit
    say(f"step {plan.step} of {plan.last_step}: {plan.checkpoint}", error=True)
    for kind, texts in (("note", plan.notes), ("problem", plan.problems)):
        for text in texts:
            say(f"{kind}: {text}", error=True)
    if not run:
        say(*plan.text.rstrip("\n").split("\n"))
    if plan.problems or not run:
        raise typer.Exit(int(bool(plan.problems)))
    here = environment(os.environ)
    here["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{here.get('PATH', os.defpath)}"
    os.execvpe("bash", ["bash", "-c", plan.text], here)
