"""``vlrft score``: why is my reward 0?

vlrft score output/completions.jsonl --reward vlrft_detection_iou --show 5
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swift_vlrft.diagnostics.score import Report, read_rows, score_completions
from swift_vlrft.rewards import REWARDS


def score(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON Lines: ms-swift's completions.jsonl (--log_completions true), or one "
            "object per completion with the keys completion, solution and any further column."
        ),
    ],
    reward: Annotated[
        list[str] | None,
        typer.Option(
            help="A reward by name; repeat for several. Default: those that the file names."
        ),
    ] = None,
    show: Annotated[
        int, typer.Option(min=0, help="Completions that lost points to print (0 = none).")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Score completions offline and say why they lost points.

    Example: vlrft score output/v0/completions.jsonl --reward vlrft_detection_iou --show 5

    Exit code 0: nothing found; 1: something was found that ruins a run; 2: the input cannot be
    used.
    """
    console = Console()
    try:
        notes: list[str] = []
        rows = list(read_rows(file, notes))
        names = reward or [name for name in REWARDS if any(name in row for row in rows)]
        if not rows:
            raise ValueError(f"{file}: no completions in it.")
        if not names:
            raise ValueError(
                f"{file} names no reward of this package; say which with --reward. "
                f"Known: {', '.join(REWARDS)}."
            )
        report = score_completions(rows, names, show)
        report.notes = notes
    except (OSError, UnicodeError, ValueError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report, console)
    raise typer.Exit(1 if report.flags else 0)


def _print(report: Report, console: Console) -> None:
    table = Table(title=f"{report.rows} completions")
    table.add_column("reward", no_wrap=True)
    for heading in ("mean", "spread", "full", "parsed", "rows", "other"):
        table.add_column(heading, justify="right")
    for name, summary in report.rewards.items():
        table.add_row(
            name,
            _number(summary.mean),
            _number(summary.spread),
            _percent(summary.full),
            _percent(summary.parse_rate),
            str(summary.scored),
            str(summary.skipped),
        )
    console.print(table)
    reasons = Table(title="why")
    for heading in ("reward", "reason", "completions"):
        reasons.add_column(heading, justify="right" if heading == "completions" else "left")
    for name, summary in report.rewards.items():
        for code, count in summary.reasons.items():
            reasons.add_row(name, code.replace("_", " "), str(count))
    console.print(reasons)
    for sample in report.samples:
        console.print(
            f"line {sample.line}  {sample.reward}  {_number(sample.score)}  {sample.reason}",
            markup=False,
            highlight=False,
        )
        for heading, text in (("solution", sample.solution), ("completion", sample.completion)):
            console.print(f"  {heading}: {_shown(text)}", markup=False, highlight=False)
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    for flag in report.flags:
        console.print(f"[red]flag:[/red] {escape(flag)}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _shown(text: str, longest: int = 400) -> str:
    """One printable line: what a model writes must not reach the terminal as control characters."""
    cut = text if len(text) <= longest else text[: longest // 2] + " ... " + text[-longest // 2 :]
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)
