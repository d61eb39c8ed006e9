"""Compute each task's figures where one run trains on several: some learn, and some do not.

    detection   share 0.5   reward 0.62   length 210   parse_rate 0.97   zero_variance 0.25
    ocr         share 0.5   reward 1.90   length 12    parse_rate 1.00   zero_variance 0.75

Shared by the logs of training and ``vlrft score``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")


class Scored(NamedTuple):
    """Holds a completion's task, its group (None: not known), the sum of its rewards (None: no
    reward scored it), its length, and whether its answer could be read (None: no reward of a task
    scored it).
    """

    task: str
    group: Hashable
    reward: float | None
    length: int
    was_read: bool | None


class TaskFigures(msgspec.Struct):
    """Holds means over the completions of a task. ``zero_variance`` is the share of its groups
    whose completions all have the same reward, and teach nothing.
    """

    share: float
    completions: int
    reward: float | None
    length: float
    parse_rate: float | None
    groups: int
    zero_variance: float | None


def by_task(completions: Iterable[Scored]) -> dict[str, TaskFigures]:
    """Return the figures by the task's name."""
    tasks = by_group((scored.task, scored) for scored in completions)
    total = sum(map(len, tasks))
    return {
        rows[0].task: _figures(rows, total) for rows in sorted(tasks, key=lambda rows: rows[0].task)
    }


def by_group(values: Iterable[tuple[Hashable, T]]) -> list[list[T]]:
    """Return the values of each group that is known (not None)."""
    groups: dict[Hashable, list[T]] = {}
    for group, value in values:
        if group is not None:
            groups.setdefault(group, []).append(value)
    return list(groups.values())


def has_no_variance(scores: Sequence[float]) -> bool:
    """Return whether GRPO's advantages are zero."""
    return math.isclose(min(scores), max(scores), abs_tol=1e-6)


def _figures(rows: list[Scored], total: int) -> TaskFigures:
    groups = by_group((row.group, row.reward) for row in rows if row.reward is not None)
    equal = [has_no_variance(rewards) for rewards in groups if len(rewards) > 1]
    return TaskFigures(
        share=len(rows) / total,
        completions=len(rows),
        reward=_mean(row.reward for row in rows),
        length=fmean(row.length for row in rows),
        parse_rate=_mean(row.was_read for row in rows),
        groups=len(equal),
        zero_variance=_mean(equal),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
