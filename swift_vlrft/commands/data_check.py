"""``vlrft data check``: can every row of a set be trained on?

vlrft data check data/my_set --reward vlrft_detection_iou
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from swift_vlrft.commands.output import print_json, say, say_marked, table
from swift_vlrft.commands.output import show as show_table
from swift_vlrft.families import IMAGE_TYPES
from swift_vlrft.geometry.box_format import NATIVE
from swift_vlrft.rewards import PAYING, REWARDS
from swift_vlrft.rewards.contract import CONFIDENCE

if TYPE_CHECKING:
    from swift_vlrft.datasets.check import Report
    from swift_vlrft.datasets.validate import TooLong
    from swift_vlrft.families.image_resize import ImageResize

Root = Annotated[Path | None, typer.Option(help="Folder that relative image paths start from.")]
Columns = Annotated[
    str, typer.Option(help='Rename columns, as ms-swift does: {"question": "problem"}')
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option("--external-plugins", help="File with a form of records of your own; repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def check(
    source: Annotated[
        Path,
        typer.Argument(
            help="A set on disk in any form: Parquet file or folder, folder of save_to_disk, "
            "JSON or JSON Lines with image paths, COCO's instances_*.json, YOLO. SET:pixels (unit, "
            "yx1000, native) asks whether it can be trained on in that box format."
        ),
    ],
    split: Annotated[str | None, typer.Option(help="Only this split. Default: all.")] = None,
    root: Root = None,
    columns: Columns = "{}",
    external_plugins: Plugins = None,
    reward: Annotated[
        list[str] | None,
        typer.Option(
            help="A reward of the training to come; repeat for several. Rows without a task must "
            "suit at least one reward. Default: as the rows look."
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=1, help="Also name rows whose prompt takes more tokens; needs --model."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Folder (or id) of the model whose template and tokenizer count, and whose box "
            "format SET:native is."
        ),
    ] = None,
    model_type: Annotated[
        str | None, typer.Option(help="Family of --model, if it does not tell: qwen2_5_vl, ...")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Problems to print.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Check every row of a set: image, prompt, solution, boxes, rewards.

    Example: vlrft data check data/my_set --reward vlrft_detection_iou

    Each image is opened, prompt and solution are read, boxes must lie inside the image, and the
    gold answer must score 1.0 under the rewards of its task. `vlrft data convert SET DST
    --keep-going` writes the rows without a problem.

    Exit code 0: nothing found; 1: problems were found; 2: the input cannot be used.
    """
    from swift_vlrft.datasets.check import Report, check_splits, unasked
    from swift_vlrft.datasets.questions import shared_pictures
    from swift_vlrft.datasets.schemas import load_forms
    from swift_vlrft.datasets.validate import RowRules
    from swift_vlrft.datasets.writer import with_bar
    from swift_vlrft.recipe.rules.rows import nothing_scored, routing_notes

    load_forms(external_plugins or ())
    rewards = tuple(reward or ())
    if unknown := [name for name in rewards if name not in REWARDS]:
        raise ValueError(f"--reward {unknown[0]}: no such reward; known: {', '.join(REWARDS)}")
    source, box_format, key, resize = asked_format(source, model, model_type)
    too_long = None if max_length is None else _length_check(max_length, model, model_type)
    rules = RowRules(
        rewards=rewards,
        box_format=box_format,
        box_key=key,
        resize=resize,
        too_long=too_long,
        every_reward=True,
    )
    splits = check_splits(source, rules, split, rename=renamed(columns), root=root)
    for _ in with_bar(chain.from_iterable(rows for rows, _ in splits.values())):
        pass
    report = sum((of_split for _, of_split in splits.values()), Report(source))
    shared = shared_pictures({name: of_split.pictures for name, (_, of_split) in splits.items()})
    notes = list(dict.fromkeys([*report.notes, *shared]))
    if not report.rows and not report.problems:
        raise ValueError("\n".join([f"{source} has no rows", *notes]))
    ordered = sorted(report.problems, key=lambda problem: problem.place.row is not None)
    problems = [(str(problem.place), problem.problem) for problem in ordered]
    problems += [
        (str(source), f"the split {name!r} has no rows; write them, or remove its files")
        for name, (_, of_split) in splits.items()
        if not of_split.rows and not of_split.problems and not of_split.left_out
    ]
    if not report.unreadable and (nothing := nothing_scored(rewards, [report])):
        problems.append((str(source), nothing))
    elif report.good:
        notes += routing_notes(report, rewards)
    fits = _fitting_rewards(report)
    firsts = [names[0] for names in PAYING.values() if names[0] in fits]
    notes += [f"{source}: {found}" for found, _ in unasked(rewards or firsts, [report])]
    if as_json:
        result = {
            "rows": report.rows,
            "good": report.good,
            "tasks": report.tasks,
            "rewards": fits,
            "too_long": report.too_long,
            "problems": [{"place": place, "problem": text} for place, text in problems],
            "notes": notes,
        }
        print_json(result)
    else:
        _print(problems, [*notes, *_fit_notes(fits)], show)
        counted = ", ".join(f"{n} {task}" for task, n in report.tasks.items()) or "none"
        say(f"{report.good} of {report.rows} rows are fit to train on ({counted})")
    raise typer.Exit(1 if problems else 0)


def asked_format(
    source: Path, model: str | None, model_type: str | None
) -> tuple[Path, str, str | None, ImageResize | None]:
    """Return path, box format, box key and image resize rule of ``SET[:FORMAT]``.

    The format is norm1000 where none is named; key and resize rule are the model's, for
    ``native`` alone. DataError where that needs a model.
    """
    from swift_vlrft.datasets.box_format import split_box_format

    path, subset = split_box_format(str(source))
    if subset != NATIVE:
        return path, subset, None, None
    from swift_vlrft.swift_plugin.command_line import run_of_model
    from swift_vlrft.swift_plugin.model import wanted_box_format

    run = run_of_model(model, model_type)
    return path, *wanted_box_format(run, subset, str(path))


def renamed(columns: str) -> dict[str, str]:
    """Return the value of ``--columns``, in the form of ms-swift's flag of that name."""
    try:
        return msgspec.json.decode(columns, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeError):
        expected = 'expected JSON such as {"question": "problem"}'
        raise ValueError(f"--columns {columns}: {expected}") from None


def _fitting_rewards(report: Report) -> dict[str, list[int]]:
    """Return the rewards under which gold answers earn 1.0: for how many rows, of how many that
    they would score. One that needs confidences fits where prompts ask for them.
    """
    from swift_vlrft.datasets.check import NO_TASK

    fits = {}
    for task, names in PAYING.items():
        rows = max(report.fits[task], report.tasks[task] + report.tasks[NO_TASK])
        for name in names:
            lacking = CONFIDENCE in (REWARDS[name].asks or ())
            fitting = report.fits[task] - lacking * report.unasked[task, CONFIDENCE]
            fits[name] = [fitting, rows]
    return {name: counts for name, counts in fits.items() if counts[0] > 0}


def _fit_notes(fits: dict[str, list[int]]) -> list[str]:
    all_rows = [name for name, (rows, total) in fits.items() if rows == total]
    part = [f"{name} ({r} of {n} rows)" for name, (r, n) in fits.items() if r < n]
    notes = [f"rewards that fit: {', '.join(all_rows)}"] if all_rows else []
    return notes + ([f"rewards that fit a part of the rows: {', '.join(part)}"] if part else [])


def _length_check(limit: int, model: str | None, model_type: str | None) -> TooLong:
    if model is None:
        raise ValueError("--max-length counts tokens with a model's tokenizer; give --model DIR")
    from swift_vlrft.datasets.validate import length_check
    from swift_vlrft.swift_plugin.command_line import run_of_model
    from swift_vlrft.swift_plugin.model import image_resize_of, text_tokens

    run = run_of_model(model, model_type)
    view = image_resize_of(run)
    if view is None:
        known = ", ".join(IMAGE_TYPES)
        raise ValueError(f"the family of {model} is not known; --model-type: {known}")
    return length_check(view, limit, text_tokens(run))


def _print(problems: list[tuple[str, str]], notes: list[str], show: int) -> None:
    if problems:
        title = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        drawn = table("where", "what", title=title, wraps=("what",))
        for place, text in problems[:show]:
            drawn.add_row(place, text)
        show_table(drawn)
        if len(problems) > show:
            say(f"and {len(problems) - show} more (--show {len(problems)})")
    for note in notes:
        say_marked("note:", note, "yellow")
