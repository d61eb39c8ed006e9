"""``vlrft demo`` is what `make demo` runs."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json
from swift_vlrft.commands.try_ import print_trial
from swift_vlrft.files.environment import hide_bars


def demo(
    task: Annotated[str, typer.Option(help="clips, colours or mixed.")] = "colours",
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder to write; OUT/TASK for tasks but colours.")
    ] = Path("runs/demo"),
    steps: Annotated[
        int | None, typer.Option(min=1, help="GRPO steps; default: the task's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Watch a real `swift rlhf` GRPO run learn on a CPU, in minutes: `vlrft try` on drawn data.

    Example: vlrft demo --task mixed
    """
    from swift_vlrft.demo.tasks import write_drawn
    from swift_vlrft.demo.trial import TrialConfig, remove_trial, run_trial

    hide_bars()
    folder = out / task if task != "colours" else out
    remove_trial(folder)
    with tempfile.TemporaryDirectory() as place:
        drawn = Path(place) / task
        settings = write_drawn(task, drawn).settings | ({"steps": steps} if steps else {})
        summary = run_trial(TrialConfig(str(drawn), **settings), folder)
    if as_json:
        print_json(summary)
        return
    print_trial(summary, folder)
