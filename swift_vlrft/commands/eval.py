"""``vlrft eval``: how good is a model? Its options are those of ``swift_vlrft.evaluate``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from swift_vlrft.commands.options import with_options
from swift_vlrft.commands.output import number, print_json, say, show, table
from swift_vlrft.evaluation.settings import Scoring, Settings
from swift_vlrft.files import records
from swift_vlrft.rewards import TASK_NAMES

SHOWN_CLASSES = 20


@with_options(Scoring, Settings)
def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A checkpoint, an adapter, or a hub id; code in it is run, as by ms-swift."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A set on disk, or COCO annotations (instances_*.json); with :pixels behind it, "
            "boxes are asked in pixels, as `--dataset PATH:pixels` trains."
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(help=f"{', '.join(TASK_NAMES)}.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    **options: Any,
) -> None:
    """Run a model on every query of a set and score the answers, or score existing predictions.

    Example: vlrft eval runs/grpo/checkpoint-200 data/held_out --task detection

    A killed run resumes when it is started again. Exit code 2: the input cannot be used.
    """
    text = options["engine_options"]
    try:
        options["engine_options"] = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        problem = f"--engine-options is not a JSON object ({error}): {text[:80]}"
        raise ValueError(problem) from None
    from swift_vlrft.swift_plugin import evaluate as runs

    if options["out"] is None and model is not None and dataset is not None:
        options["out"] = runs.output_folder(model, dataset)
    with answers_bar() as progress:
        summary = runs.evaluate(model, dataset, task, progress=progress, **options)
    if as_json:
        return print_json(records.as_json(summary))
    print_summary(summary)
    if options["out"] is not None:
        say(f"{options['out']}/summary.json")


@contextmanager
def answers_bar() -> Iterator[Callable[[int, int], None]]:
    """Show a bar on the error stream; if that is not a terminal, only the number done before."""
    console = Console(emoji=False, stderr=True)
    columns = ("answers", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:

        def progress(total: int, n: int) -> None:
            if not bar.tasks:
                bar.add_task("answers", total=total)
                if n:
                    console.print(f"{n} of {total} answers are there already", highlight=False)
            bar.update(bar.tasks[0].id, advance=n)

        yield progress


def print_summary(summary: Any) -> None:
    kind, of_rows = summary.task, f"{summary.rows} rows, "
    if not summary.rows:
        of_rows = "a list of boxes, "
    elif summary.protocol:
        kind += f", protocol {summary.protocol}"
    say(f"{kind}: {of_rows}{summary.images} images")
    metrics = table("metric", ">value", ">95 %")
    for name, m in summary.metrics.items():
        bounds = "-" if m.low is None else f"{m.low:.3f} to {m.high:.3f}"
        metrics.add_row(name, number(m.value), bounds)
    show(metrics)
    if summary.by_class:
        heads = list(dict.fromkeys(m for values in summary.by_class.values() for m in values))
        title = "by category" if summary.task == "detection" else "by class"
        of_class = table("name", *(f">{head}" for head in heads), title=title)
        for name, values in list(summary.by_class.items())[:SHOWN_CLASSES]:
            of_class.add_row(name, *(number(values.get(m)) for m in heads))
        show(of_class)
        if len(summary.by_class) > SHOWN_CLASSES:
            say(f"and {len(summary.by_class) - SHOWN_CLASSES} more (--json has them)")
    say(*(f"note: {note}" for note in summary.notes))
    for kind, count in summary.problems.items():
        say(f"{count} {kind}: {', '.join(summary.named.get(kind, []))}")
