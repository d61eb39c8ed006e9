"""Figures of each task, where one run trains on several: which of them learns, and which does not.

    detection   share 0.5   reward 0.62   length 210   parse_rate 0.97   zero_variance 0.25
    ocr         share 0.5   reward 1.90   length 12    parse_rate 1.00   zero_variance 0.75

Shared by the logs of training and ``vlrft score``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from statistics import fmean
from typing import NamedTuple

import msgspec

from swift_vlrft.diagnostics.health import has_no_variance


class Scored(NamedTuple):
    """A completion: the task of its row, the group that it was sampled in (None: not known), the
    sum of its rewards (None: no reward scored it), its length, and whether its answer could be read
    (None: no reward of a task scored it).
    """

    task: str
    group: Hashable
    reward: float | None
    length: int
    was_read: bool | None


class TaskFigures(msgspec.Struct):
    """Means over the completions of a task; ``zero_variance`` is the share of its groups whose
    completions all have the same reward, and teach nothing.
    """

    share: float
    completions: int
    reward: float | None
    length: float
    parse_rate: float | None
    groups: int
    zero_variance: float | None


def by_task(completions: Iterable[Scored]) -> dict[str, TaskFigures]:
    """The figures by the task's name."""
    rows: dict[str, list[Scored]] = {}
    for one in completions:
        rows.setdefault(one.task, []).append(one)
    total = sum(map(len, rows.values()))
    return {task: _figures(of_task, total) for task, of_task in sorted(rows.items())}


def _figures(rows: list[Scored], total: int) -> TaskFigures:
    groups: dict[Hashable, list[float]] = {}
    for one in rows:
        if one.group is not None and one.reward is not None:
            groups.setdefault(one.group, []).append(one.reward)
    several = [rewards for rewards in groups.values() if len(rewards) > 1]
    equal = list(map(has_no_variance, several))
    return TaskFigures(
        share=len(rows) / total,
        completions=len(rows),
        reward=_mean(one.reward for one in rows),
        length=fmean(one.length for one in rows),
        parse_rate=_mean(one.was_read for one in rows),
        groups=len(several),
        zero_variance=_mean(equal),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
