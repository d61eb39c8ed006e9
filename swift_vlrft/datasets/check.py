"""Check whether each row of a set is fit to train on, for training and `vlrft data check`:
validate.py judges a row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, islice, product, repeat
from pathlib import Path
from typing import Any, NamedTuple

from swift_vlrft.datasets.declared import DeclaredBoxes, add_boxes, misdeclared
from swift_vlrft.datasets.image import ImageSize
from swift_vlrft.datasets.opening import open_set, splits_of
from swift_vlrft.datasets.questions import Questions
from swift_vlrft.datasets.read import rows_of, sized_rows
from swift_vlrft.datasets.row import STOPS, BadRow, Kind, Row, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import MAX_SHOWN, StoredSet, file_notes, left_out_notes
from swift_vlrft.datasets.validate import RowRules, fitting_tasks, lacks, routed, training_row
from swift_vlrft.rewards import REWARDS
from swift_vlrft.rewards.contract import Asked

NO_TASK = "without a task"


@dataclass
class Report:
    """The report on a set lists ``problems`` in the order of the rows."""

    path: Path
    rows: int = 0
    problems: list[BadRow] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    box_formats: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    """The count of what correctly makes no row, where it was asked; the notes say why."""
    scored: Counter[str] = field(default_factory=Counter)
    """Good rows by the tasks whose rewards score them; a row without a task may be in several."""
    boxes: DeclaredBoxes = field(default_factory=dict)
    """Boxes of all rows as they are stored: can they be in the format that rows declare?"""
    shared: Counter[str] = field(default_factory=Counter)
    """Rows without a task that several of the named rewards read, by their tasks."""
    unread: str = ""
    """Rows that no named reward reads, where the set has no others without a task."""
    other_tasks: Counter[str] = field(default_factory=Counter)
    """Rows that were passed over, of tasks that were not asked for."""
    pictures: dict[str, str] = field(default_factory=dict)
    """The first good row of each picture, by its content or its path."""
    fits: Counter[str] = field(default_factory=Counter)
    """Good rows by the tasks whose rewards their gold would earn 1.0 under, where it was asked."""
    unasked: Counter[tuple[str, Asked]] = field(default_factory=Counter)
    """Good rows whose prompts never ask for it, by the tasks that score them; "": all."""

    def __add__(self, other: Report) -> Report:
        """Return what both count, under this report's path: boxes and pictures are of each."""
        names = {f.name for f in fields(self)} - {"path", "boxes", "pictures"}
        return Report(self.path, **{n: getattr(self, n) + getattr(other, n) for n in names})

    def add_good(self, row: Row, tasks: Sequence[str], system: str) -> None:
        """Count a good row that the rewards of ``tasks`` score; ``system`` as in ``RowRules``."""
        self.tasks[row.columns.get("task") or NO_TASK] += 1
        self.box_formats[row.columns.get("frame") or "none"] += 1
        if len(tasks) > 1:
            self.shared[" and ".join(tasks)] += 1
        self.scored.update(tasks)
        prompt = f"{row.columns.get('system') or system}\n{row.problem}"
        self.unasked.update(product(("", *tasks), lacks(prompt)))

    def finish(self, *, strict: bool = False, tasks: Sequence[str] = ()) -> None:
        """Finish the report when all rows were read. DataError where no row is left, where a gold
        solution cannot be read, and, if ``strict``, where any row is bad; where no row is of the
        ``tasks`` asked for, it names the tasks that are there.
        """
        if self.other_tasks and not self.rows and not self.problems:
            text = f"{self.path}:{'/'.join(tasks)}: no row has the task {' or '.join(tasks)}; "
            if self.other_tasks[NO_TASK]:
                text += "state it in a column task; "
            raise DataError(f"{text}there are {self.passed_over()}")
        if not self.rows and not self.problems:
            raise DataError("\n".join([f"{self.path} has no rows", *self.notes]))
        bad = len(self.problems) > self.too_long
        if (bad and strict) or self.unreadable or not self.good:
            said = f"{len(self.problems)} of {self.rows} rows of {self.path} cannot be trained on"
            if any(problem.kind is Kind.SET for problem in self.problems):
                said = f"{self.path} cannot be trained on as it is declared"
            raise DataError(f"{said}:\n{self.listed()}")

    def passed_over(self) -> str:
        """Describe the rows that were not asked for, for a message."""
        return ", ".join(f"{count} {task}" for task, count in self.other_tasks.most_common())

    def rows_by_task(self) -> str:
        """Describe the rows by task, for a message."""
        parts = [
            f"{count} {task}" if self.rows else task  # of a hub's set nobody knows how many
            for task, count in self.tasks.most_common()
            if task != NO_TASK
        ]
        if last := self.unread or (f"{n} {NO_TASK}" if (n := self.tasks[NO_TASK]) else ""):
            parts.append(last)
        return "; ".join(parts) or "no row"

    def bad_notes(self, shown: int = MAX_SHOWN) -> list[str]:
        """Note the rows that a training leaves out."""
        notes = []
        if self.too_long:
            notes.append(f"{self.path}: {self.too_long} rows are longer than allowed.")
        if bad := len(self.problems) - self.too_long:
            notes.append(
                f"{self.path}: {bad} bad rows are left out (--strict true stops instead; `vlrft "
                "data check` lists all, `vlrft data convert --keep-going` writes the others)."
            )
        return [*notes, f"left out:\n{self.listed(shown)}"] if self.problems else []

    @property
    def good(self) -> int:
        return self.rows - sum(problem.place.row is not None for problem in self.problems)

    @property
    def too_long(self) -> int:
        return sum(problem.kind is Kind.TOO_LONG for problem in self.problems)

    @property
    def unreadable(self) -> int:
        """Count the problems that stop a training."""
        return sum(problem.kind in STOPS for problem in self.problems)

    def listed(self, most: int = MAX_SHOWN) -> str:
        """List the first problems, a line each, those of the set as a whole before all others."""
        ordered = sorted(self.problems, key=lambda problem: problem.kind is not Kind.SET)
        lines = [f"  {problem}" for problem in ordered[:most]]
        more = len(self.problems) - most
        return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)


class GoodRow(NamedTuple):
    """A row as it is stored, and as it trains; the size of its image, where that was looked at, and
    the tasks whose rewards score it.
    """

    row: Row
    trained: Row
    size: ImageSize | None
    tasks: Sequence[str]


def validate_rows(
    rows: Iterable[tuple[Row | BadRow, ImageSize | str | None]],
    rules: RowRules,
    report: Report,
) -> Iterator[GoodRow | BadRow]:
    """Judge rows, each with its image's size or what is wrong with it, and count in ``report``;
    rows of other tasks than ``rules`` names are only counted. A problem of the whole set is last.
    """
    questions = Questions(by_content=rules.every_reward, pictures=report.pictures)
    for row, image in rows:
        if isinstance(row, BadRow):
            report.rows += row.place.row is not None
            report.problems.append(row)
            yield row
            continue
        row, tasks = routed(row, rules.rewards)
        task = row.columns.get("task") or NO_TASK
        # A row of the task "OCR" is not passed over if ocr is asked for: it is reported.
        if rules.tasks and str(task).strip().lower() not in rules.tasks:
            report.other_tasks[str(task)] += 1
            continue
        report.rows += 1
        size = image if isinstance(image, ImageSize) else None
        add_boxes(report.boxes, row, size)
        trained, problem = training_row(row, image, rules, tasks)
        if problem is not None:
            report.problems.append(problem)
        elif trained is not None:
            report.add_good(trained, tasks, rules.system)
            if tasks:
                questions.add(row, tasks[0])
            if rules.every_reward and size is not None:
                report.fits.update(fitting_tasks(row, size, tasks))
        if trained is not None:
            yield GoodRow(row, trained, size, tasks)
        elif problem is not None:
            yield problem
    unread = [bad for bad in report.problems if bad.kind is Kind.NOT_READ]
    if unread and not report.scored and not rules.every_reward:
        # The rewards may be for the other sets of the command.
        report.problems = [bad for bad in report.problems if bad.kind is not Kind.NOT_READ]
        report.tasks[NO_TASK] += len(unread)
        report.unread = f"{len(unread)} rows without a task, such as {unread[0]}"
    report.notes += questions.notes(report.path)
    if text := misdeclared(report.boxes, report.path):
        report.problems.append(BadRow(RowLocation(report.path), text, Kind.SET))
        yield report.problems[-1]


def check_set(
    path: Path | StoredSet,
    *,
    images: bool | int = True,
    rules: RowRules | None = None,
    **options: Any,
) -> Report:
    """Check every row, with ``images`` also its image, or so many first images. ``options`` are
    ``open_set``'s. DataError only for a set that cannot be used at all.
    """
    stored = open_set(path, **options) if isinstance(path, Path) else path
    report = Report(stored.path)
    rules = rules or RowRules(every_reward=images is True)
    for _ in check_rows(stored, rules, report, images=images):
        pass
    return report


def check_splits(
    path: Path, rules: RowRules, split: str | None = None, **options: Any
) -> dict[str, tuple[Iterator[GoodRow | BadRow], Report]]:
    """Return the rows of every split, checked as they are read, and the report on them.

    ``split`` names one of them. The report is complete when all rows were read. ``options`` are
    ``open_set``'s.
    """
    checked = {}
    for name in [split] if split else splits_of(path):
        stored = open_set(path, split=name, **options)
        report = Report(path)
        checked[name] = check_rows(stored, rules, report), report
    return checked


def check_rows(
    stored: StoredSet, rules: RowRules, report: Report, *, images: bool | int = True
) -> Iterator[GoodRow | BadRow]:
    """Yield every good row and every problem; when all were read, ``report`` also has the notes."""
    sized: Iterable[tuple[Row | BadRow, ImageSize | str | None]] = sized_rows(stored)
    if images is not True:  # the bytes of further images stay unread
        sizes = [size for _, size in islice(sized, images)]
        sized = zip(rows_of(stored, without_images=True), chain(sizes, repeat(None)), strict=False)
    yield from validate_rows(sized, rules, report)
    report.left_out = sum(map(len, stored.left_out.values()))
    texts, rows = report.scored["classification"], report.tasks[NO_TASK]
    # Some of the texts may be broken boxes.
    if not rules.rewards and report.tasks.keys() == {NO_TASK} and texts not in (0, rows):
        report.notes.append(
            f"{report.path}: no row states a task; {rows - texts} solutions are boxes, and {texts} "
            "may be classes: state the task in a column task"
        )
    report.notes += [*left_out_notes(stored), *file_notes(stored)]


def unasked(
    rewards: Sequence[str], reports: Sequence[Report], written: Collection[str] = ()
) -> list[tuple[str, bool]]:
    """Return what prompts of these sets never ask for, and whether all of them; the model writes
    ``written`` by itself.
    """
    found: dict[tuple[str, int, int, str], list[str]] = {}
    for name in filter(REWARDS.get, rewards):
        task = REWARDS[name].task
        for asked in REWARDS[name].asks or ():
            lacking = sum(r.unasked[task.name if task else "", asked] for r in reports)
            if lacking and not any(re.search(asked.pattern, text) for text in written):
                rows = sum(r.scored[task.name] if task else r.good for r in reports)
                found.setdefault((asked.what, lacking, rows, asked.line), []).append(name)
    line = "'" + " ".join(dict.fromkeys(asks for *_, asks in found)) + "'"
    return [
        (
            f"{lacking} of {rows} prompts never ask for {what}, and every answer without it earns "
            f"0 under {' and '.join(names)}: add --system {line} to the training, or write it "
            f"into the prompts by vlrft data convert SRC DST --ask {line}",
            lacking >= rows,
        )
        for (what, lacking, rows, _), names in found.items()
    ]
