"""``vlrft compare``: is B better than A?"""

from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.output import number, print_json, say, say_marked, show, table
from swift_vlrft.evaluation.settings import DRAWS

COLOURS = {"better": "green", "not proven": "yellow", "worse": "red"}


def compare(
    a: Annotated[Path, typer.Argument(help="Predictions, or the folder of a run: before.")],
    b: Annotated[Path, typer.Argument(help="Predictions, or the folder of a run: after.")],
    task: Annotated[str | None, typer.Option(help="Task, if the files do not name it.")] = None,
    bootstrap: Annotated[int, typer.Option(min=2, help="Draws for the intervals of AP.")] = DRAWS,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    shown: Annotated[int, typer.Option("--show", min=0, help="Flipped rows to print.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Is B better than A? Compare their metrics, with intervals, and list the rows that flipped.

    Example: vlrft compare runs/eval/before runs/eval/after
    """
    from swift_vlrft.evaluation.compare import compare_runs
    from swift_vlrft.files import records

    result = compare_runs(a, b, task=task, bootstrap=bootstrap, seed=seed)
    if as_json:
        return print_json(records.as_json(result))
    say_marked(f"{result.verdict.word}:", result.verdict.why, COLOURS[result.verdict.word])
    kind = f"{result.task}, protocol {result.protocol}" if result.protocol else result.task
    title = f"{kind}: {result.rows} rows in both, {result.images} images"
    metrics = table("metric", ">A", ">B", ">B - A", ">95 %", title=title)
    for name, d in result.metrics.items():
        sign = f"{d.difference:+.3f}" if d.difference is not None else "-"
        bounds = "-" if d.low is None or d.high is None else f"{d.low:+.3f} to {d.high:+.3f}"
        metrics.add_row(name, number(d.a), number(d.b), sign, bounds)
    show(metrics)
    say(*(f"note: {note}" for note in result.notes))
    if result.only_a or result.only_b:
        say(f"rows only in A: {result.only_a}; only in B: {result.only_b} (left out)")
    say(f"became right: {len(result.gained)}; became wrong: {len(result.lost)}")
    for name, flips in (("right", result.gained), ("wrong", result.lost)):
        for flip in flips[:shown]:
            text = f"{flip.a:.2f} ({flip.why_a}) -> {flip.b:.2f} ({flip.why_b})"
            say(f"  row {flip.id} became {name}: {text}")
