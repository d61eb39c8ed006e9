"""``vlrft report``: one HTML page that shows what a run did.

vlrft report runs/grpo --eval runs/eval/before --eval runs/eval/after
"""

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="--output_dir of a `swift rlhf` run.")],
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(
            "--eval", help="A folder of `vlrft eval`: one, or before and after. Repeat the option."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: RUN/report.html.")
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Rows shown of the largest gain, and of the largest loss.")
    ] = 6,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write one self-contained HTML page: settings, curves, evaluations, answers that changed.

    Example: vlrft report runs/grpo --eval runs/eval/before --eval runs/eval/after
    """
    from swift_vlrft.commands.eval import fail
    from swift_vlrft.report import write_report

    try:
        target, problems = write_report(
            run, evaluation or [], out or run / "report.html", count=samples
        )
    except (OSError, ValueError) as error:
        fail(error)
    if as_json:
        typer.echo(
            json.dumps(
                {"report": str(target), "bytes": target.stat().st_size, "problems": problems}
            )
        )
        return
    for problem in problems:
        typer.echo(f"not shown: {problem}")
    typer.echo(f"{target}  {target.stat().st_size / 1e6:.2f} MB")
