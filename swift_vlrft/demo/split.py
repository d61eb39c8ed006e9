"""A set is divided in two for a run: rows to train on, and held-out rows of other pictures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.datasets.check import check_splits
from swift_vlrft.datasets.convert import image_base, written_row
from swift_vlrft.datasets.image import stored_image
from swift_vlrft.datasets.opening import splits_of
from swift_vlrft.datasets.report import Report
from swift_vlrft.datasets.routing import tasks_of_row
from swift_vlrft.datasets.row import Kind, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import WORDS
from swift_vlrft.datasets.validate import RowRules, ask_boxes
from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.rewards import REWARDS

SHARE = 0.2
"""The share of the pictures that are held out where the set has no split for it."""
LEAST = 40
"""So many pictures are needed: of fewer, at most eight are compared, too few for a verdict."""
FEWEST = {"train": round(LEAST * (1 - SHARE)), "test": round(LEAST * SHARE)}
"""So many pictures are needed in each half of a set that has both."""
NO_ROW_IS_KEPT = (Kind.SET, Kind.FILE)
"""Problems of a whole set or file: leaving rows out does not mend them."""
MOST = 2000
"""So many rows are taken: more do not fit into minutes."""


class Halves(msgspec.Struct):
    """Halves count the rows of each task to train on and to hold out, and note what else to say."""

    train: dict[str, int] = {}
    test: dict[str, int] = {}
    notes: list[str] = []

    def rewards(self) -> dict[str, str]:
        """Choose the reward of each task: a soft reward, as a tiny model starts far off, else the
        first.
        """
        chosen = {}
        for task in self.train:
            fit = [name for name, of in REWARDS.items() if of.task and of.task.name == task]
            chosen[task] = next((name for name in fit if name.endswith("_soft")), fit[0])
        return chosen


def write_halves(source: Path, folder: Path, seed: int = 0, box_format: str = "norm1000") -> Halves:
    """Write the rows of ``source`` that are fit to train on in ``box_format`` to ``folder``, as
    they are, as splits train and test. DataError says, before anything is trained, what makes it no
    set to learn from.
    """
    names = {WORDS.get(name.lower(), name): name for name in splits_of(source)}
    halves = Halves()
    split_of = {"train": names.get("train"), "test": names.get("test") or names.get("validation")}
    if len(names) == 1:
        split_of = {"train": next(iter(names.values())), "test": None}
        if "train" not in names:
            halves.notes.append(f"its only split, {split_of['train']}, is divided in two")
    if split_of["train"] is None:
        raise DataError(f"{source}: its splits are {', '.join(names.values())}; none is train")
    items = {}
    left = [name for name in names.values() if name not in split_of.values()]
    halves.notes += [f"the split {name} is not used" for name in left]
    for half, split in split_of.items():
        if split is not None:
            items[half] = _fit(source, split, box_format, halves.notes)
    why = "".join(f"; {note}" for note in halves.notes)
    if "test" not in items:
        items = _by_picture(source, items["train"], seed, why)
    else:
        halves.notes += _apart(items)
    _refuse(source, items, why)
    halves.notes += _in_both(source, items)
    for half, rows in items.items():
        setattr(halves, half, dict(Counter(row["task"] for row in rows)))
    write_folder(folder, items)
    return halves


def _fit(source: Path, split: str, box_format: str, notes: list[str]) -> list[dict[str, Any]]:
    """The rows without a problem, of tasks that have a reward, ready to be written."""
    rules = RowRules(every_reward=True, box_format=box_format)
    ((rows, report),) = check_splits(source, rules, split).values()
    base, fit = image_base(source, None), []
    for checked in islice(rows, MOST):
        if isinstance(row := checked.row, Row) and checked.problem is None:
            item = written_row(row, stored_image(row.image, base)[0])
            item["task"] = tasks_of_row(row)[0]
            fit.append(item)
    if more := next(iter(rows), None) is not None:
        ask_boxes(report)  # at the end of a set it was asked
        notes.append(f"only the first {MOST} rows of the split {split} are taken")
    if whole := [str(problem) for problem in report.problems if problem.kind in NO_ROW_IS_KEPT]:
        raise DataError(whole[0])
    notes += _said(report, split, whole=not more)
    return fit


def _said(report: Report, split: str, *, whole: bool) -> Iterator[str]:
    if report.problems:
        yield (
            f"rows of the split {split} that are left out: {len(report.problems)}, such as "
            f"{report.problems[0]}; `vlrft data check` lists all"
        )
    if whole:
        yield from report.notes


def _by_picture(
    source: Path, rows: list[dict[str, Any]], seed: int, why: str
) -> dict[str, list[dict[str, Any]]]:
    """No picture is in both halves, however many rows ask about it."""
    of = [_picture(row) for row in rows]
    pictures = sorted(set(of))
    if len(pictures) < LEAST:
        raise DataError(
            f"{source} has {len(pictures)} pictures that are fit to train on; {LEAST} or more are "
            f"needed to hold some out and tell a difference from chance{why}"
        )
    held_out = set(random.Random(seed).sample(pictures, round(SHARE * len(pictures))))
    return {
        "train": [row for row, name in zip(rows, of, strict=True) if name not in held_out],
        "test": [row for row, name in zip(rows, of, strict=True) if name in held_out],
    }


def _picture(row: dict[str, Any]) -> str:
    return sha256(row["image"]["bytes"]).hexdigest()


def _apart(items: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Leave rows to train on out whose picture is held out, where the set has both splits."""
    held_out, rows = {_picture(row) for row in items["test"]}, items["train"]
    items["train"] = [row for row in rows if _picture(row) not in held_out]
    if not (shared := len(rows) - len(items["train"])):
        return []
    return [f"rows to train on that are left out, as their picture is held out: {shared}"]


def _in_both(source: Path, items: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Leave the rows of tasks out that only one half has: nothing can be compared there."""
    tasks = {half: Counter(row["task"] for row in rows) for half, rows in items.items()}
    both = tasks["train"].keys() & tasks["test"].keys()
    if not both:
        raise DataError(
            f"{source}: its splits have no task in common: {', '.join(tasks['train'])} to train "
            f"on, {', '.join(tasks['test'])} held out"
        )
    for half, rows in items.items():
        items[half] = [row for row in rows if row["task"] in both]
    return [
        f"rows of the task {task} are left out, as only the {half} half has any: {n}"
        for half, counts in tasks.items()
        for task, n in counts.items()
        if task not in both
    ]


def _refuse(source: Path, items: dict[str, list[dict[str, Any]]], why: str) -> None:
    for half, rows in items.items():
        if not rows:
            raise DataError(f"{source}: no row of its {half} half is fit to train on{why}")
        pictures = len(set(map(_picture, rows)))
        if pictures < (least := FEWEST[half]):
            raise DataError(
                f"{source}: its {half} half has {pictures} pictures that are fit to train on; "
                f"{least} or more are needed to tell a difference from chance{why}"
            )
    answers = {row["solution"] for row in items["train"]}
    if len(answers) == 1:
        raise DataError(
            f"{source}: every row has the same answer, {answers.pop()!r}: there is nothing to "
            f"learn{why}"
        )
