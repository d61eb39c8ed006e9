"""``vlrft data check``: is every row of a set fit to train on?

vlrft data check data/my_set --fix data/my_set_clean
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swift_vlrft.commands.progress import fail, progress_bar, renamed
from swift_vlrft.datasets.report import Report
from swift_vlrft.families import IMAGE_TYPES
from swift_vlrft.rewards import REWARDS


def check(
    source: Annotated[
        Path,
        typer.Argument(
            help="A set on disk in any form: Parquet file or folder, folder of save_to_disk, "
            "JSON or JSON Lines with image paths, COCO's instances_*.json. SET:pixels asks "
            "whether it can be trained on in pixels."
        ),
    ],
    fix: Annotated[
        Path | None,
        typer.Option(help="Write the rows without a problem to this new folder, as Parquet."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Only this split. Default: all.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="The folder that relative image paths start from.")
    ] = None,
    columns: Annotated[
        str, typer.Option(help='Rename columns, as ms-swift does: {"question": "problem"}')
    ] = "{}",
    reward: Annotated[
        list[str] | None,
        typer.Option(
            help="A reward that training will name; repeat for several. Rows without a task must "
            "read under one of them. Default: as they look."
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=1, help="Also name rows whose prompt takes more tokens; needs --model."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Folder (or id) of the model whose template and tokenizer count."),
    ] = None,
    model_type: Annotated[
        str | None, typer.Option(help=f"Its family, if it is not told: {', '.join(IMAGE_TYPES)}.")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Problems to print.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Run every row: its image is looked at, prompt and solution are read, boxes must lie inside
    their frame and image, and the gold answer must score 1.0 under the rewards of its task.

    Example: vlrft data check data/my_set --fix data/my_set_clean

    Exit code 0: nothing found; 1: problems were found; 2: the input cannot be used.
    """
    from swift_vlrft.datasets.box_format import split_box_format
    from swift_vlrft.datasets.check import validate_rows
    from swift_vlrft.datasets.clean import write_clean
    from swift_vlrft.datasets.forms import splits_of
    from swift_vlrft.datasets.read import open_set
    from swift_vlrft.datasets.report import nothing_scored

    written = None
    rewards = reward or []
    try:
        if unknown := [name for name in rewards if name not in REWARDS]:
            raise ValueError(f"--reward {unknown[0]}: no such reward; known: {', '.join(REWARDS)}")
        rename = renamed(columns)
        source, frame = split_box_format(str(source))
        splits = [split] if split else splits_of(source)
        too_long = None if max_length is None else _length_check(max_length, model, model_type)
        with progress_bar() as bar:
            if fix is not None:
                limit = f"{max_length} {model} {model_type} {rewards}"
                written, reports = write_clean(
                    source, fix, splits, root=root, rename=rename, too_long=too_long,
                    rewards=rewards, frame=frame, limit=limit, on_row=lambda n: bar(None, n),
                )  # fmt: skip
            else:
                reports = []
                for name in splits:
                    form = open_set(source, split=name, keep_going=True, rename=rename)
                    reports.append(Report(source))
                    for _ in validate_rows(
                        form, reports[-1], root=root, rename=rename, too_long=too_long,
                        rewards=rewards, frame=frame,
                    ):  # fmt: skip
                        bar(None, 1)
        if not any(report.rows or report.problems for report in reports):
            notes = [note for report in reports for note in report.notes]
            raise ValueError("\n".join([f"{source} has no rows", *notes]))
    except (OSError, ValueError) as error:
        fail(error)
    problems = [(str(place), text) for report in reports for place, text in report.problems]
    problems += [
        (str(source), f"the split {name!r} has no rows; write them, or remove its files")
        for name, report in zip(splits, reports, strict=True)
        if not report.rows and not report.problems
    ]
    if not any(report.unreadable for report in reports) and (
        nothing := nothing_scored(rewards, reports)
    ):
        problems.append((str(source), nothing.removeprefix("--reward_funcs ")))
    rows, good = sum(r.rows for r in reports), sum(r.good for r in reports)
    tasks: dict[str, int] = {}
    for report in reports:
        for task, count in report.tasks.items():
            tasks[task] = tasks.get(task, 0) + count
    notes = list(dict.fromkeys(note for report in reports for note in report.notes))
    for report in reports:
        notes += report.shared_notes()
    fits = _fitting(reports)
    if as_json:
        found = {
            "rows": rows,
            "good": good,
            "tasks": tasks,
            "rewards": fits,
            "too_long": sum(report.too_long for report in reports),
            "problems": [{"place": place, "problem": text} for place, text in problems],
            "notes": notes,
            "clean": None if written is None else {"folder": str(fix), "rows": written.rows},
        }
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(rows, good, tasks, problems, [*notes, *_said(fits)], show)
        if written is not None:
            left_out = f"; left out: {fix}/left_out.jsonl" if written.left_out else ""
            typer.echo(f"{fix}: {written.rows} rows{left_out}")
    raise typer.Exit(1 if problems else 0)


def _fitting(reports: list[Report]) -> dict[str, list[int]]:
    """The rewards under which gold answers earn 1.0: of how many rows, of how many that they would
    score.
    """
    from swift_vlrft.datasets.report import NO_TASK
    from swift_vlrft.datasets.row_check import FULL

    found: dict[str, list[int]] = {}
    for task, names in FULL.items():
        rows = sum(report.fits[task] for report in reports)
        asked = sum(report.tasks[task] + report.tasks[NO_TASK] for report in reports)
        if rows:
            found |= {name: [rows, max(rows, asked)] for name in names}
    return found


def _said(fits: dict[str, list[int]]) -> list[str]:
    whole = [name for name, (rows, asked) in fits.items() if rows == asked]
    parts = [f"{name} ({r} of {n} rows)" for name, (r, n) in fits.items() if r < n]
    return [
        f"{text}: {', '.join(names)}"
        for text, names in (
            ("rewards that fit", whole),
            ("rewards that fit a part of the rows", parts),
        )
        if names
    ]


def _length_check(limit: int, model: str | None, model_type: str | None):  # type: ignore[no-untyped-def]
    if model is None:
        raise ValueError("--max-length counts tokens with a model's tokenizer; give --model DIR")
    from swift_vlrft.datasets.check import length_check
    from swift_vlrft.swift_plugin.command_line import CommandLine
    from swift_vlrft.swift_plugin.model import image_resize_of, text_tokens

    command = CommandLine(model=model, model_type=model_type)
    view = image_resize_of(command)
    if view is None:
        raise ValueError(
            f"the family of {model} is not known; --model_type: {', '.join(IMAGE_TYPES)}"
        )
    return length_check(view, limit, text_tokens(command))


def _print(
    rows: int,
    good: int,
    tasks: dict[str, int],
    problems: list[tuple[str, str]],
    notes: list[str],
    show: int,
) -> None:
    console = Console()
    if problems:
        table = Table(title=f"{len(problems)} problem{'s' * (len(problems) > 1)}")
        table.add_column("where", overflow="fold")
        table.add_column("what", overflow="fold")
        for place, text in problems[:show]:
            table.add_row(escape(place), escape(text.removeprefix(f"{place} ")))
        console.print(table)
        if len(problems) > show:
            typer.echo(f"and {len(problems) - show} more (--show {len(problems)})")
    for note in notes:
        console.print(f"[yellow]note:[/yellow] {escape(note)}", soft_wrap=True)
    counted = ", ".join(f"{count} {task}" for task, count in tasks.items())
    typer.echo(f"{good} of {rows} rows are fit to train on ({counted or 'none'})")
