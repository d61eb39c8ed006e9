"""``vlrft report`` writes one HTML page that shows what a run did."""

from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json, say


def report(
    run: Annotated[Path, typer.Argument(help="--output_dir of a `swift rlhf` run.")],
    evaluation: Annotated[
        list[Path] | None,
        typer.Option("--eval", help="Folder of `vlrft eval`; give it twice for before and after."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: RUN/report.html.")
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Rows to show of each kind: became right, became wrong, ...")
    ] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write one self-contained HTML page: verdict, curves, what changed, settings.

    Example: vlrft report runs/grpo --eval runs/eval/before --eval runs/eval/after
    """
    from swift_vlrft.report.page import write_report

    target = out or run / "report.html"
    target, problems = write_report(run, evaluation or [], target, count=samples)
    size = target.stat().st_size
    if as_json:
        return print_json({"report": str(target), "bytes": size, "problems": problems})
    say(*(f"not shown: {problem}" for problem in problems), f"{target}  {size / 1e6:.2f} MB")
