"""Is a row fit to train on? The same questions before training, at conversion and in ``vlrft data
check``.

the solution "a dog" cannot be read as a list of boxes (detection)
the box (10, 20, 1400, 90) reaches beyond norm1000 (0 to 1000)
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from swift_vlrft.datasets.image import ImageInfo, size_problem
from swift_vlrft.datasets.routing import named_tasks, not_read, not_text, reads, tasks_of_row
from swift_vlrft.datasets.row import BOX_TASKS, Row
from swift_vlrft.datasets.schema import solution_problem
from swift_vlrft.parsing.answers import Box, BoxList, boxes_or_refusal, gold_text
from swift_vlrft.rewards import REWARDS, TASK_NAMES

# The formulas of the paper are left out: they do not pay for two equal boxes.
FULL = {
    task: [
        name
        for name, reward in REWARDS.items()
        if reward.task is not None and reward.task.name == task and reward.recommended
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
    row: Row,
    info: ImageInfo | None = None,
    *,
    every_reward: bool = True,
    rewards: Sequence[str] = (),
) -> str | None:
    """What is wrong with a row, or None; ``info`` is its picture's, where it was looked at.

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
        if problem := _task_problem(task, row, text, info, FULL if every_reward else FIRST):
            return problem
    return None


def _task_problem(
    task: str, row: Row, text: str, info: ImageInfo | None, rewards: Mapping[str, Sequence[str]]
) -> str | None:
    """What is wrong with a row as one of ``task``."""
    gold = None if not_text(task, row.solution) else TASK_NAMES[task].read_gold(text)
    if gold is None:
        why = _invalid_box(text) if task in BOX_TASKS else ""
        return UnreadableGold(
            f"the solution {text[:80]!r} cannot be read as {TASK_NAMES[task].holds} ({task}){why}"
        )
    if task in BOX_TASKS:
        if problem := size_problem(row.image, info, row.drawn):
            return problem
        frame = row.columns.get("frame")
        boxes = gold.boxes if isinstance(gold, BoxList) else [gold]
        if frame not in ("norm1000", "pixels") and (boxes or frame is not None):
            return f"unknown frame {frame!r}; known: norm1000, pixels"
        if problem := _outside(boxes, frame, info):
            return problem
    return gold_problem(task, text, gold, row.columns, rewards)


def fitting_tasks(row: Row, info: ImageInfo | None = None) -> list[str]:
    """The tasks under all of whose rewards a row's gold answer earns 1.0: its own, where it states
    one that fits.
    """
    tasks = [task] if (task := row.columns.get("task")) and row.guess is None else TASK_NAMES
    text = gold_text(row.solution)
    return [
        task
        for task in tasks
        if (row.guess is None or reads(task, row))
        and _task_problem(task, row, text, info, FULL) is None
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


def _outside(boxes: list[Box | None], frame: str, info: ImageInfo | None) -> str | None:
    if frame == "norm1000":
        width = height = 1000
        meant = "norm1000 (0 to 1000); where boxes are in pixels, say so in a column frame"
    elif info is None:
        return None
    else:
        width, height = info.width, info.height
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
        score = REWARDS[name]([completion], [text], **further)[0]
        if score is None or score < 1.0 - 1e-9:
            return f"the gold answer {text[:80]!r} scores {score} under {name}, not 1.0"
    return None
