"""``vlrft demo`` is what `make demo` runs."""

import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from swift_vlrft.commands.output import print_json
from swift_vlrft.commands.try_ import print_trial
from swift_vlrft.files.environment import hide_bars


def demo(
    task: Annotated[Literal["colours", "clips"], typer.Option(help="Shapes, or videos.")] = (
        "colours"
    ),
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder to write.")] = Path(
        "runs/demo"
    ),
    steps: Annotated[int, typer.Option(min=1, help="GRPO steps.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Watch a real `swift rlhf` GRPO run learn on a CPU, in minutes: `vlrft try` on drawn data.

    Example: vlrft demo --steps 40
    """
    from swift_vlrft.demo import clips, rows
    from swift_vlrft.demo.trial import TrialConfig, remove_trial, run_trial

    hide_bars()
    remove_trial(out)
    with tempfile.TemporaryDirectory() as place:
        drawn, made = Path(place) / task, {"colours": rows, "clips": clips}[task]
        made.write_drawn(drawn)
        summary = run_trial(TrialConfig(str(drawn), steps=steps, **made.TRIAL), out)
    if as_json:
        return print_json(summary)
    print_trial(summary, out)
