"""Divide a set in two for a trial: rows to train on, and held-out rows of other pictures."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.datasets.check import GoodRow, check_splits, unasked
from swift_vlrft.datasets.convert import written_row
from swift_vlrft.datasets.declared import misdeclared
from swift_vlrft.datasets.image import image_hash, stored_image
from swift_vlrft.datasets.opening import splits_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import WORDS
from swift_vlrft.datasets.validate import RowRules
from swift_vlrft.datasets.video_rows import write_video_rows
from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.rewards import PAYING, REWARDS, TASK_NAMES

HELD_OUT_SHARE = 0.2
"""The share of the pictures that are held out."""
LEAST = 40
"""The fewest pictures of a set: of fewer, at most eight are compared, too few for a verdict."""
MOST_ROWS = 2000
"""Rows that are taken: more do not fit into minutes."""

Items = dict[str, list[dict[str, Any]]]
"""The stored rows of each half."""


class Halves(msgspec.Struct):
    """Counts of each task's rows to train on and to hold out, and notes on what was left out."""

    train: dict[str, int] = {}
    test: dict[str, int] = {}
    notes: list[str] = []

    @property
    def of_videos(self) -> bool:
        return any(TASK_NAMES[task].has_spans for task in self.train)

    def rewards(self) -> dict[str, str]:
        """Choose the main reward of each task, if there is one its soft form: a tiny model starts
        far off.
        """
        mains = ((task, PAYING[task][0]) for task in self.train)
        return {task: f"{main}_soft" if f"{main}_soft" in REWARDS else main for task, main in mains}


def write_halves(source: Path, folder: Path, seed: int = 0, box_format: str = "norm1000") -> Halves:
    """Write the rows of ``source`` that are fit to train on to ``folder``, as train and test.

    They are written in ``box_format``, as they are. DataError says, before anything is trained,
    what makes it no set to learn from.
    """
    halves = Halves()
    split = _chosen_split(source, halves.notes)
    rows = _fit_rows(source, split, box_format, halves.notes)
    _refuse(source, rows, "".join(f"; {note}" for note in halves.notes))
    items = _divided(rows, seed)
    halves.notes += _without_lone_tasks(items)
    for half, of in items.items():
        setattr(halves, half, dict(Counter(row["task"] for row in of)))
    if halves.of_videos:
        write_video_rows(folder, items)
    else:
        write_folder(folder, items)
    return halves


def _chosen_split(source: Path, notes: list[str]) -> str:
    """Return the name of the split that is divided: train, or the only one."""
    names = {WORDS.get(name.lower(), name): name for name in splits_of(source)}
    if len(names) > 1 and "train" not in names:
        raise DataError(f"{source}: its splits are {', '.join(names.values())}; none is train")
    split = names.pop("train", None) or names.popitem()[1]
    notes += [f"the split {name} is not used" for name in names.values()]
    return split


def _fit_rows(source: Path, split: str, box_format: str, notes: list[str]) -> list[dict[str, Any]]:
    """Return the rows without a problem, of tasks that have a reward, ready to be written."""
    rules = RowRules(every_reward=True, box_format=box_format)
    ((rows, report),) = check_splits(source, rules, split).values()
    base = Path(os.path.abspath(source if source.is_dir() else source.parent))
    fit: list[dict[str, Any]] = []
    for one in islice(rows, MOST_ROWS):
        if isinstance(one, GoodRow) and one.size:
            image = one.row.image
            if not image.get("video"):
                image = stored_image(image, base, one.size)
            fit.append(written_row(one.row, image) | {"task": one.tasks[0]})
    if more := next(iter(rows), None) is not None:
        notes.append(f"only the first {MOST_ROWS} rows are taken")
    if whole := misdeclared(report.boxes, source):
        raise DataError(f"{source}: {whole}")
    notes += [text for text, _ in unasked(["vlrft_format"], [report])]
    if report.problems:
        notes.append(
            f"rows that are left out: {len(report.problems)}, such as {report.problems[0]}; "
            "`vlrft data check` lists all"
        )
    notes += [] if more else report.notes
    return fit


def _divided(rows: list[dict[str, Any]], seed: int) -> Items:
    """Divide the rows by picture: none is in both halves, however many rows ask about it."""
    hashes = [image_hash(row["image"]) for row in rows]
    pictures = sorted(set(hashes))
    held_out = set(random.Random(seed).sample(pictures, round(HELD_OUT_SHARE * len(pictures))))
    items: Items = {"train": [], "test": []}
    for row, picture in zip(rows, hashes, strict=True):
        items["test" if picture in held_out else "train"].append(row)
    return items


def _without_lone_tasks(items: Items) -> list[str]:
    """Leave the rows of tasks out that only one half has: nothing can be compared there."""
    train, test = (Counter(row["task"] for row in rows) for rows in items.values())
    lone = {task: n for task, n in (train | test).items() if not (train[task] and test[task])}
    for half, rows in items.items():
        items[half] = [row for row in rows if row["task"] not in lone]
    return [
        f"rows of the task {task} are left out, as only one half has any: {n}"
        for task, n in lone.items()
    ]


def _refuse(source: Path, rows: Sequence[dict[str, Any]], why: str) -> None:
    """Raise DataError where there are too few pictures, or all answers are the same."""
    pictures = len({image_hash(row["image"]) for row in rows})
    if pictures < LEAST:
        raise DataError(
            f"{source}: it has {pictures} different pictures that are fit to train on; {LEAST} or "
            f"more are needed, to tell a difference from chance{why}"
        )
    answers = {row["solution"] for row in rows}
    if len(answers) == 1:
        raise DataError(
            f"{source}: every row has the same answer, {answers.pop()!r}: there is nothing to "
            f"learn{why}"
        )
