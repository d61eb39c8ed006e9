"""``vlrft data check``: can every row of a set be trained on?

vlrft data check data/my_set --fix data/my_set_clean
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swift_vlrft.commands.data_shared import AsJson, Columns, Root, renamed, row_bar
from swift_vlrft.commands.output import print_json

if TYPE_CHECKING:
    from swift_vlrft.datasets.report import Report
    from swift_vlrft.datasets.validate import RowRules, TooLong
    from swift_vlrft.datasets.writer import Written


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
    root: Root = None,
    columns: Columns = "{}",
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
        str | None, typer.Option(help="Its family, if it is not told: qwen2_5_vl, ...")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Problems to print.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Check every row: its image is opened, prompt and solution are read, boxes must lie inside
    the image, and the gold answer must score 1.0 under the rewards of its task.

    Example: vlrft data check data/my_set --fix data/my_set_clean

    Exit code 0: nothing found; 1: problems were found; 2: the input cannot be used.
    """
    from swift_vlrft.datasets.box_format import split_box_format
    from swift_vlrft.datasets.validate import RowRules
    from swift_vlrft.rewards import REWARDS

    rewards = reward or []
    if unknown := [name for name in rewards if name not in REWARDS]:
        raise ValueError(f"--reward {unknown[0]}: no such reward; known: {', '.join(REWARDS)}")
    rename = renamed(columns)
    source, box_format = split_box_format(str(source))
    too_long = None if max_length is None else _length_check(max_length, model, model_type)
    rules = RowRules(
        rewards=tuple(rewards), box_format=box_format, too_long=too_long, every_reward=True
    )
    reports, written = _checked(source, rules, split, rename, root, fix)
    problems, notes = _problems(source, reports, rewards)
    fits = _fitting(list(reports.values()))
    tasks = sum((report.tasks for report in reports.values()), Counter())
    rows = sum(report.rows for report in reports.values())
    good = sum(report.good for report in reports.values())
    if as_json:
        result = {
            "rows": rows,
            "good": good,
            "tasks": tasks,
            "rewards": fits,
            "too_long": sum(report.too_long for report in reports.values()),
            "problems": [{"place": place, "problem": text} for place, text in problems],
            "notes": notes,
            "clean": None if written is None else {"folder": str(fix), "rows": written.rows},
        }
        print_json(result)
    else:
        _print(problems, [*notes, *_fit_notes(fits)], show)
        counted = ", ".join(f"{n} {task}" for task, n in tasks.items()) or "none"
        typer.echo(f"{good} of {rows} rows are fit to train on ({counted})")
        if written is not None:
            left_out = f"; left out: {fix}/left_out.jsonl" if written.left_out else ""
            typer.echo(f"{fix}: {written.rows} rows{left_out}")
    raise typer.Exit(1 if problems else 0)


def _checked(
    source: Path,
    rules: RowRules,
    split: str | None,
    rename: dict[str, str],
    root: Path | None,
    fix: Path | None,
) -> tuple[dict[str, Report], Written | None]:
    """The reports by split, and the clean folder if one is written."""
    from swift_vlrft.datasets.check import check_rows
    from swift_vlrft.datasets.convert import write_clean
    from swift_vlrft.datasets.opening import open_set, rename_notes, splits_of
    from swift_vlrft.datasets.report import Report

    reports = {name: Report(source) for name in ([split] if split else splits_of(source))}
    checked = {}
    for name, report in reports.items():
        stored = open_set(source, split=name, keep_going=True, rename=rename, root=root)
        report.notes += rename_notes(stored)
        checked[name] = check_rows(stored, rules, report)
    with row_bar() as (advance, _):
        if fix is not None:
            return reports, write_clean(source, fix, checked, root=root, on_row=advance)
        for _ in chain.from_iterable(checked.values()):
            advance(1)
    return reports, None


def _problems(
    source: Path, reports: dict[str, Report], rewards: list[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """What is wrong, by place, and what else is to be said; ValueError for a set without rows."""
    from swift_vlrft.datasets.report import nothing_scored

    found = list(reports.values())
    notes = list(dict.fromkeys(note for report in found for note in report.notes))
    if not any(report.rows or report.problems for report in found):
        raise ValueError("\n".join([f"{source} has no rows", *notes]))
    problems = [(str(one.place), one.text) for report in found for one in report.problems]
    problems += [
        (str(source), f"the split {name!r} has no rows; write them, or remove its files")
        for name, report in reports.items()
        if not report.rows and not report.problems
    ]
    nothing = None
    if not any(report.unreadable for report in found):
        nothing = nothing_scored(rewards, found)
    if nothing:
        problems.append((str(source), nothing.removeprefix("--reward_funcs ")))
    return problems, notes + [note for report in found for note in report.shared_notes()]


def _fitting(reports: list[Report]) -> dict[str, list[int]]:
    """The rewards under which gold answers earn 1.0: of how many rows, of how many that they would
    score.
    """
    from swift_vlrft.datasets.report import NO_TASK
    from swift_vlrft.datasets.validate import FULL

    fits: dict[str, list[int]] = {}
    for task, names in FULL.items():
        rows = sum(report.fits[task] for report in reports)
        total = sum(report.tasks[task] + report.tasks[NO_TASK] for report in reports)
        if rows:
            fits |= {name: [rows, max(rows, total)] for name in names}
    return fits


def _fit_notes(fits: dict[str, list[int]]) -> list[str]:
    all_rows = [name for name, (rows, total) in fits.items() if rows == total]
    part = [f"{name} ({r} of {n} rows)" for name, (r, n) in fits.items() if r < n]
    notes = [f"rewards that fit: {', '.join(all_rows)}"] if all_rows else []
    return notes + ([f"rewards that fit a part of the rows: {', '.join(part)}"] if part else [])


def _length_check(limit: int, model: str | None, model_type: str | None) -> TooLong:
    if model is None:
        raise ValueError("--max-length counts tokens with a model's tokenizer; give --model DIR")
    from swift_vlrft.datasets.check import length_check
    from swift_vlrft.families import IMAGE_TYPES
    from swift_vlrft.swift_plugin.command_line import CommandLine
    from swift_vlrft.swift_plugin.model import image_resize_of, text_tokens

    command = CommandLine(model=model, model_type=model_type)
    view = image_resize_of(command)
    if view is None:
        known = ", ".join(IMAGE_TYPES)
        raise ValueError(f"the family of {model} is not known; --model-type: {known}")
    return length_check(view, limit, text_tokens(command))


def _print(problems: list[tuple[str, str]], notes: list[str], show: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    from swift_vlrft.commands.output import show as show_table
    from swift_vlrft.commands.output import table

    if problems:
        title = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        drawn = table("where", "what", title=title, wraps=("what",))
        for place, text in problems[:show]:
            drawn.add_row(escape(place), escape(text.removeprefix(f"{place} ")))
        show_table(drawn)
        if len(problems) > show:
            typer.echo(f"and {len(problems) - show} more (--show {len(problems)})")
    for note in notes:
        Console().print(f"[yellow]note:[/yellow] {escape(note)}", soft_wrap=True)
