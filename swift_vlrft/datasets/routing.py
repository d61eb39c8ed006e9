"""A row is scored by the rewards of the task that its set states; else by each reward that the
command names and that reads its gold.

    solution    task column    --reward_funcs                          scored by
    4           counting       vlrft_counting vlrft_classification     vlrft_counting
    4           none           vlrft_counting vlrft_detection_iou      vlrft_counting: it reads it
    4           none           vlrft_counting vlrft_classification     both (a note says so)
    four        none           vlrft_counting                          none: an error

What a row looks like decides only where no reward is named, as in ``vlrft data check``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from swift_vlrft.datasets.row import BOX_TASKS, Row
from swift_vlrft.datasets.schema import task_of
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.rewards import REWARDS, TASK_NAMES


def named_tasks(rewards: Iterable[str]) -> dict[str, list[str]]:
    """Return the tasks of the named rewards of this package, with the rewards' names."""
    named: dict[str, list[str]] = {}
    for name in rewards:
        if name in REWARDS and (task := REWARDS[name].task) is not None:
            named.setdefault(task.name, []).append(name)
    return named


def tasks_of_row(row: Row, rewards: Sequence[str] = ()) -> list[str]:
    """Return the tasks whose rewards score the row; empty if no named reward reads its gold.

    Without rewards the task that the row looks to be of; where all of them are of others than us,
    none, and what its gold may be is theirs to say.
    """
    task, named = row.columns.get("task"), named_tasks(rewards)
    if task and (row.guess is None or not named or task in named):
        return [task]
    if not named:
        return [] if rewards else [row.guess or task_of(row.solution)]
    return [name for name in named if reads(name, row)]


def routed(row: Row, rewards: Sequence[str]) -> Row:
    """Return the row with the one task whose rewards score it; without a task if several do."""
    tasks = tasks_of_row(row, rewards)
    if row.guess is None or not named_tasks(rewards) or tasks == [row.columns.get("task")]:
        return row
    task = tasks[0] if len(tasks) == 1 else None
    box_format = row.columns.get("frame") or ("norm1000" if task in BOX_TASKS else None)
    return replace(row, columns=row.columns | {"task": task, "frame": box_format})


def reads(task: str, row: Row) -> bool:
    """Tell whether the rewards of a task read the gold of a row that states no task.

    A list of boxes is no class name and no text in an image (but "(12, 30)" may be that), nor is
    "No Objects" in a set that holds boxes.
    """
    if task in ("classification", "ocr"):
        boxes = read_boxes(gold_text(row.solution))
        holds_boxes = boxes is not None and (boxes or row.guess == "detection")
        if boxes is not None and holds_boxes and (task != "ocr" or None not in boxes.boxes):
            return False
    return TASK_NAMES[task].read_gold(row.solution) is not None
