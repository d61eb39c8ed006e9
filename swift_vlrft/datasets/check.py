"""Is a row fit to train on? The same questions before training and in ``vlrft data check``.

the solution "a dog" cannot be read as a list of boxes (detection)
the box (10, 20, 1400, 90) reaches beyond norm1000 (0 to 1000)
the image in the row is broken (image file is truncated); get it again
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.answers import Box, BoxList, boxes_or_refusal, gold_text
from swift_vlrft.datasets.forms import Form, unread_notes
from swift_vlrft.datasets.frames import View, row_in_frame
from swift_vlrft.datasets.image import Head, HeadReader, size_problem
from swift_vlrft.datasets.instances import NOT_IN_FULL, UNSURE
from swift_vlrft.datasets.parquet import missing_shards
from swift_vlrft.datasets.read import open_set, renamed_columns, rows_of
from swift_vlrft.datasets.routing import (
    named_tasks,
    not_read,
    not_text,
    reads,
    routed,
    tasks_of_row,
    unscored,
)
from swift_vlrft.datasets.row import BOX_TASKS, BadRow, Place, Row
from swift_vlrft.datasets.shape import solution_problem
from swift_vlrft.datasets.shapes import is_for_swift
from swift_vlrft.datasets.source import Source
from swift_vlrft.rewards import REWARDS, TASK_NAMES, TASKS

MAX_SHOWN = 5
NO_TASK = "without a task"

# The formulas of the paper are left out: they do not pay for two equal boxes.
FULL = {
    task: [
        name
        for name, owner in TASKS.items()
        if owner is not None and owner.name == task and not name.startswith("vlrft_paper")
    ]
    for task in TASK_NAMES
}
FIRST = {task: names[:1] for task, names in FULL.items()}


class UnreadableGold(str):
    """The problem of a row whose gold solution is no answer to its task, or whose task is unknown.

    A set with such a row is not trained on: the same mistake usually stands in rows that read.
    """


class NotRead(UnreadableGold):
    """The row states no task, and no reward that the command names reads its gold."""


def row_problem(
    row: Row, head: Head | None = None, *, every_reward: bool = True, rewards: Sequence[str] = ()
) -> str | None:
    """What is wrong with a row, or None; ``head`` is its picture's, where it was looked at.

    Before training one reward a task scores the gold answer; ``every_reward`` asks all of them.
    ``rewards`` are those that the command names: see routing.py.
    """
    task = row.columns.get("task")
    if not isinstance(row.problem, str) or not row.problem.strip():
        return f"the problem is {row.problem!r}, a prompt is needed"
    if task is not None and task not in TASK_NAMES:
        near = difflib.get_close_matches(str(task).strip().lower(), TASK_NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return UnreadableGold(f"unknown task {task!r}; known: {', '.join(TASK_NAMES)}.{hint}")
    if problem := solution_problem(row.solution):
        return UnreadableGold(problem)
    text = gold_text(row.solution)
    for name, value in (("problem", row.problem), ("solution", text)):
        if problem := _unwritable(value):
            return f"the {name} {problem}"
    tasks = tasks_of_row(row, rewards)
    if not tasks and named_tasks(rewards):
        return NotRead(not_read(row, rewards))
    for task in tasks:
        if problem := _task_problem(task, row, text, head, FULL if every_reward else FIRST):
            return problem
    return None


def _task_problem(
    task: str, row: Row, text: str, head: Head | None, rewards: Mapping[str, Sequence[str]]
) -> str | None:
    """What is wrong with a row as one of ``task``."""
    gold = None if not_text(task, row.solution) else TASK_NAMES[task].read_gold(text)
    if gold is None:
        why = _invalid_box(text) if task in BOX_TASKS else ""
        return UnreadableGold(
            f"the solution {text[:80]!r} cannot be read as {TASK_NAMES[task].holds} ({task}){why}"
        )
    if task in BOX_TASKS:
        if problem := size_problem(row.image, head, row.drawn):
            return problem
        frame = row.columns.get("frame")
        boxes = gold.boxes if isinstance(gold, BoxList) else [gold]
        if frame not in ("norm1000", "pixels") and (boxes or frame is not None):
            return f"unknown frame {frame!r}; known: norm1000, pixels"
        if problem := _outside(boxes, frame, head):
            return problem
    return gold_problem(task, text, gold, row.columns, rewards)


def fitting_tasks(row: Row, head: Head | None = None) -> list[str]:
    """The tasks under all of whose rewards a row's gold answer earns 1.0: its own, where it states
    one that fits.
    """
    tasks = [task] if (task := row.columns.get("task")) and row.guess is None else TASK_NAMES
    text = gold_text(row.solution)
    return [
        task
        for task in tasks
        if (row.guess is None or reads(task, row))
        and _task_problem(task, row, text, head, FULL) is None
    ]


def _unwritable(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"holds {text[error.start]!r}, half a character, which no file can store"
    return None


def _invalid_box(text: str) -> str:
    """Which box of a solution is invalid, to end the sentence with; empty where none is."""
    found = boxes_or_refusal(text)
    if found is None or None not in found.boxes:
        return ""
    number = found.boxes.index(None) + 1
    return f": box {number} of {len(found)} is not four numbers with an area"


def _outside(boxes: list[Box | None], frame: str, head: Head | None) -> str | None:
    if frame == "norm1000":
        width = height = 1000
        meant = "norm1000 (0 to 1000); where boxes are in pixels, say so in a column frame"
    elif head is None:
        return None
    else:
        width, height = head.width, head.height
        meant = f"the image of {width} x {height} pixels"
    for box in boxes:
        # Annotations in pixels are often rounded up: one pixel more is no error.
        slack = 0 if frame == "norm1000" else 1
        if box is None:
            return "a box of the solution is not four numbers with an area"
        if min(box) < -slack or box[2] > width + slack or box[3] > height + slack:
            return f"the box {tuple(round(v, 1) for v in box)} reaches beyond {meant}"
    return None


def gold_problem(
    task: str,
    text: str,
    gold: Any,
    columns: Mapping[str, Any],
    rewards: Mapping[str, Sequence[str]],
) -> str | None:
    """Which of the task's ``rewards`` does not pay in full for the gold answer; None where all
    do.
    """
    answer = text
    if isinstance(gold, BoxList) and len(gold):
        boxes = zip(gold.boxes, gold.labels, strict=True)
        said = [
            {"Position": box, "Confidence": 1} | ({"label": label} if label else {})
            for box, label in boxes
        ]
        answer = json.dumps(said)
    completion = f"<think>.</think><answer>{answer}</answer>"
    further = {k: [v] for k, v in columns.items() if k in ("aliases", "task")}
    for name in rewards[task]:
        if name.endswith("_format"):
            score = REWARDS[name]([completion], **further)[0]
        else:
            score = REWARDS[name]([completion], [text], **further)[0]
        if score is None or score < 1.0 - 1e-9:
            return f"the gold answer {text[:80]!r} scores {score} under {name}, not 1.0"
    return None


@dataclass
class Report:
    """What was found in a set; ``problems`` in the order of the rows."""

    path: Path
    rows: int = 0
    problems: list[tuple[Place, str]] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    too_long: int = 0
    notes: list[str] = field(default_factory=list)
    scored: Counter[str] = field(default_factory=Counter)
    """Good rows by the tasks whose rewards score them; a row without a task may be of several."""
    shared: Counter[str] = field(default_factory=Counter)
    """Rows without a task that several of the named rewards read, by their tasks."""
    unread: str = ""
    """Which rows no named reward reads, where those are all that the set has without a task."""
    fits: Counter[str] = field(default_factory=Counter)
    """Good rows by the tasks whose rewards their gold would earn 1.0 under, where it was asked."""

    def add_good(self, row: Row, rewards: Sequence[str] = ()) -> None:
        task = row.columns.get("task")
        self.tasks[task or NO_TASK] += 1
        self.frames[row.columns.get("frame") or "none"] += 1
        tasks = tasks_of_row(row, rewards)
        self.scored.update(tasks)
        if len(tasks) > 1:
            self.shared[" and ".join(tasks)] += 1

    def leave_unread(self) -> None:
        """Where no row of the set is scored by a named reward, since none reads its gold, that is
        for a note: the rewards may be for the other sets of the command.
        """
        unread = [found for found in self.problems if isinstance(found[1], NotRead)]
        if unread and not self.scored:
            self.problems = [found for found in self.problems if not isinstance(found[1], NotRead)]
            self.tasks[NO_TASK] += len(unread)
            place, text = unread[0]
            self.unread = f"{len(unread)} rows without a task, as of {place}: {text}"

    def rows_by_task(self) -> str:
        """What its rows are, for a message."""
        stated = [
            f"{count} {task}" if self.rows else task  # of a hub's set nobody knows how many
            for task, count in self.tasks.most_common()
            if task != NO_TASK
        ]
        rest = [] if self.unread else [f"{n} {NO_TASK}" for n in [self.tasks[NO_TASK]] if n]
        return "; ".join([*stated, *rest, *([self.unread] if self.unread else [])]) or "no row"

    def routing_notes(self, rewards: Sequence[str]) -> list[str]:
        """What to say of rows that no named reward scores, or several do."""
        named = named_tasks(rewards)
        if named and not any(self.scored[task] for task in named):
            return [f"{self.path}: no reward that is named scores its rows: {self.rows_by_task()}"]
        return self.shared_notes()

    def shared_notes(self) -> list[str]:
        """What to say of rows that rewards of several tasks score."""
        return [
            f"{self.path}: {count} rows state no task, and rewards of {tasks} read their gold: all "
            "of them score these rows. A column task says which is meant"
            for tasks, count in self.shared.items()
        ]

    @property
    def good(self) -> int:
        return self.rows - sum(place.row is not None for place, _ in self.problems)

    @property
    def unreadable(self) -> int:
        """Rows whose gold solution cannot be read."""
        return sum(isinstance(problem, UnreadableGold) for _, problem in self.problems)

    @property
    def bad_rows(self) -> str:
        """How many rows cannot be trained on, to begin a message with."""
        if not self.rows:
            return f"{self.path} cannot be read"
        return f"{len(self.problems)} of {self.rows} rows of {self.path} cannot be trained on"

    def listed(self, most: int = MAX_SHOWN) -> str:
        """The first problems, a line each."""
        lines = [
            f"  {text if str(place) in text else f'{place}: {text}'}"
            for place, text in self.problems[:most]
        ]
        more = len(self.problems) - most
        return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)


def report_of_source(source: Source) -> Report:
    """What is known of a set of a hub before it is downloaded: its task, not how many rows."""
    return Report(
        Path(source.hub_id), tasks=Counter({source.task: 1}), scored=Counter({source.task: 1})
    )


TooLong = Callable[[Row, Head], str | None]


def check_set(
    path: Path | Form,
    *,
    split: str = "train",
    root: Path | None = None,
    rename: Mapping[str, str] | None = None,
    images: bool = True,
    keep_going: bool = True,
    too_long: TooLong | None = None,
    rewards: Sequence[str] = (),
) -> Report:
    """Ask every row; ``images``: look at its picture, too. Raises DataError only for a set that
    cannot be used at all.
    """
    form = path if isinstance(path, Form) else None
    if not isinstance(path, Form):
        form = open_set(path, split=split, keep_going=keep_going, rename=rename)
    assert form is not None
    report = Report(form.path)
    for _ in judged(
        form, report, root=root, rename=rename, images=images, too_long=too_long, rewards=rewards
    ):
        pass
    return report


def nothing_scored(rewards: Sequence[str], reports: Sequence[Report | None]) -> str | None:
    """What to say where a named reward scores no row of any data set; None where each scores some,
    and where a set is not known (its report is None).
    """
    known = [report for report in reports if report is not None]
    scored: Counter[str] = sum((report.scored for report in known), Counter())
    if len(known) < len(reports) or not known or not (names := unscored(rewards, scored)):
        return None
    tasks = named_tasks(names)
    sets = "\n".join(f"  {report.path}: {report.rows_by_task()}" for report in known)
    fitting = [n for n in REWARDS if (t := TASKS[n]) is not None and t.name in scored]
    others = f" Rewards of the tasks that are there: {', '.join(fitting)}." if fitting else ""
    holds = " or ".join(TASK_NAMES[task].holds for task in tasks)
    return (
        f"--reward_funcs {' '.join(names)}: no row of any data set is scored by "
        f"{'these' if len(names) > 1 else 'it'}, so nothing would be learned. Scored are rows of "
        f"the task {' or '.join(tasks)}, and rows without a task whose solution is {holds}:\n"
        f"{sets}\n"
        f"Leave it out, name a reward of these rows, or put their column task right.{others} "
        "`vlrft data check PATH` says which rewards fit a set."
    )


def judged(
    form: Form,
    report: Report,
    *,
    root: Path | None = None,
    rename: Mapping[str, str] | None = None,
    images: bool = True,
    too_long: TooLong | None = None,
    rewards: Sequence[str] = (),
    frame: str = "norm1000",
) -> Iterator[tuple[Row | BadRow, str | None]]:
    """Every row with what is wrong with it, or None; counted in ``report``. ``rewards`` are those
    that a command names, ``frame`` is the subset.
    """
    looks, heads = _PixelLook(), HeadReader()
    not_in_pixels: list[tuple[Place, str]] = []
    for row in rows_of(form, root=root, rename=rename, without_images=not images):
        report.rows += row.place.row is not None
        head, problem = None, row.problem if isinstance(row, BadRow) else None
        if isinstance(row, Row):
            row = routed(row, rewards)
            if images:
                found = heads(row.image)
                head, problem = (None, found) if isinstance(found, str) else (found, None)
            problem = problem or row_problem(row, head, every_reward=images, rewards=rewards)
            if problem is None and too_long is not None and head is not None:
                problem = too_long(row, head)
                report.too_long += problem is not None
            if problem is None and head is not None:
                problem = frame_problem(row, head, frame)
                if problem is None and (other := frame_problem(row, head, "pixels")):
                    not_in_pixels.append((row.place, other))
        if problem is not None:
            report.problems.append((row.place, problem))
        elif isinstance(row, Row):
            report.add_good(row, rewards)
            if head is not None:
                looks.add(row, head)
                report.fits.update(fitting_tasks(row, head))
        yield row, problem
    if (note := looks.note()) is not None:
        report.notes.append(note)
    if not_in_pixels:
        place, text = not_in_pixels[0]
        report.notes.append(
            f"{form.path}: {len(not_in_pixels)} rows train as they stand, but not as "
            f"{form.path}:pixels, which leaves them out, as of {place}: {text}"
        )
    report.notes += [*left_out_notes(form), *file_notes(form, rename)]


def frame_problem(row: Row, head: Head, frame: str) -> str | None:
    """Why a row cannot be put in the frame of a subset; None where it can."""
    size = head.width, head.height
    # Which model sees it is not known; it seldom sees a picture at its own size.
    seen = size if frame == "norm1000" else (size[0] + 1, size[1] + 1)
    try:
        row_in_frame(row, frame, size, seen)
    except ValueError as error:
        return str(error)
    return None


def file_notes(form: Form, rename: Mapping[str, str] | None = None) -> list[str]:
    """Which files of the set were not read, which its names miss, and whether training would read
    it at all.
    """
    notes = unread_notes(form)
    if is_for_swift(renamed_columns(form, rename)):
        notes.append(
            f"{form.path}: for its column messages, training hands this set to ms-swift's own "
            "loader, which takes the prompt from there and leaves pictures and boxes as they are. "
            "What is said here holds for image, problem and solution: to train on those, add "
            '--columns \'{"messages": "other"}\''
        )
    shards = [*form.files, *(bad.place.file for bad in form.broken)]
    if form.path.is_dir() and (missing := missing_shards(shards)):
        some = ", ".join(missing[:MAX_SHOWN]) + (" ..." if len(missing) > MAX_SHOWN else "")
        notes.append(
            f"{form.path}: by the names of its files, {len(missing)} more are meant to be there "
            f"({some}); where that is not on purpose, download them"
        )
    return notes


def left_out_notes(form: Form) -> list[str]:
    """How much of the set made no row though nothing is wrong with it, and which; to be asked when
    all rows were read.
    """
    notes = []
    for reason, places in form.left_out.items():
        some = "; ".join(places[:MAX_SHOWN]) + ("; ..." if len(places) > MAX_SHOWN else "")
        notes.append(f"{form.path}: {len(places)} times {left_out_reason(reason)} ({some})")
    return notes


def left_out_reason(reason: str) -> str:
    of_category = reason in (UNSURE, NOT_IN_FULL)
    return f"a category of an image makes no row: {reason}" if of_category else reason


@dataclass
class _PixelLook:
    """Counts that tell boxes in pixels, said to be in norm1000, from the real ones."""

    boxes: int = 0
    beyond: int = 0

    def add(self, row: Row, head: Head) -> None:
        if row.columns.get("frame") != "norm1000" or max(head.width, head.height) >= 900:
            return
        gold = boxes_or_refusal(gold_text(row.solution)) if row.has_boxes else None
        for box in gold.boxes if gold is not None else ():
            if box is not None:
                self.boxes += 1
                self.beyond += box[2] > head.width or box[3] > head.height

    def note(self) -> str | None:
        if self.boxes < 20 or self.beyond:
            return None
        return (
            f"none of {self.boxes} boxes said to be in norm1000 reaches beyond its image's width "
            "and height in pixels: they look like pixels. If they are, add a column frame with "
            "the value pixels."
        )


def length_check(
    view: View, limit: int, text_tokens: Callable[[str], int]
) -> Callable[[Row, Head], str | None]:
    """Says of a row whose prompt is longer than ``limit`` tokens how long it is."""

    def too_long(row: Row, head: Head) -> str | None:
        try:
            image = view.tokens(head.width, head.height)
        except ValueError as error:
            return str(error)
        text = text_tokens(row.problem)
        if image + text <= limit:
            return None
        return f"the prompt takes {image + text} tokens ({image} for the image), over {limit}"

    return too_long
