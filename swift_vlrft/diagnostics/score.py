"""Completions scored offline: why is my reward 0?

    report = score_file(Path("output/completions.jsonl"), ["vlrft_detection_iou"])
    report.rewards["vlrft_detection_iou"].mean, report.flags

The file is read by files/completions.py: ms-swift's own log, or one object per completion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, pstdev

import msgspec

from swift_vlrft.diagnostics.checks import (
    BoxFormatCheck,
    has_boxes,
    has_zero_variance,
    unreadable,
    zero_variance,
)
from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.files.completions import Completion, further, read_completions
from swift_vlrft.parsing.answers import gold_text, read
from swift_vlrft.rewards import REWARDS


class RewardSummary(msgspec.Struct):
    """One reward over all rows of its task; ``std`` is over completions."""

    scored: int = 0
    skipped: int = 0
    unlogged: int = 0
    """The number of rows, if the run's log has no score for any of them; else 0."""
    other: dict[str, int] = {}
    """Why rows were skipped, with counts."""
    bad_gold: int = 0
    mean: float | None = None
    std: float | None = None
    full: float | None = None
    readable: int = 0
    parse_rate: float | None = None
    groups: int = 0
    zero_variance_groups: int = 0
    reasons: dict[str, int] = {}


class Sample(msgspec.Struct):
    """One completion that lost points under one reward."""

    line: str
    reward: str
    score: float | None
    code: str
    reason: str
    completion: str
    solution: str


class Report(msgspec.Struct):
    """What ``vlrft score`` prints. ``flags`` are problems that ruin a run, ``notes`` lines that
    were left out.
    """

    rows: int
    rewards: dict[str, RewardSummary]
    flags: list[str]
    samples: list[Sample]
    notes: list[str] = []


def score_file(path: Path, names: Sequence[str] = (), show: int = 0) -> Report:
    """Score a file under ``names``, or under the rewards that it has columns for. ValueError names
    the unusable line.
    """
    notes: list[str] = []
    rows = list(read_completions(path, notes))
    if not rows:
        raise ValueError(f"{path}: no completions in it.")
    names = names or [name for name in REWARDS if any(name in row.row for row in rows)]
    if not names:
        raise ValueError(
            f"{path} names no reward of this package; say which with --reward. "
            f"Known: {', '.join(REWARDS)}."
        )
    report = score_completions(rows, names, show)
    report.notes = notes
    return report


def score_completions(
    completions: Iterable[Completion], names: Sequence[str], show: int = 0
) -> Report:
    """Score every completion under every reward of ``names``; keep up to ``show`` samples that
    lost points. ValueError: an unknown reward, or a row without a column that is needed.
    """
    unknown = [name for name in names if name not in REWARDS]
    if unknown:
        raise ValueError(f"unknown reward {unknown[0]!r}; known: {', '.join(REWARDS)}.")
    rows = list(completions)
    results: dict[str, list[Reason]] = {name: [] for name in names}
    box_format = BoxFormatCheck()
    samples: list[Sample] = []
    for completion in rows:
        row = completion.row
        if "completion" not in row:
            raise ValueError(f"{completion}: no key 'completion' (found: {', '.join(row)}).")
        gold = gold_text(row.get("solution"))
        for name in names:
            reason = _reason(completion, name)
            results[name].append(reason)
            if reason.code not in ("ok", "other_task") and len(samples) < show:
                text = read(row["completion"]).completion
                samples.append(
                    Sample(
                        completion.place, name, reason.score, reason.code, reason.text, text, gold
                    )
                )
        with_boxes = next((name for name in names if has_boxes(name, row.get("task"))), None)
        if with_boxes is not None:
            box_format.add_row(with_boxes, row)
    groups = [_group(completion) for completion in rows]
    rewards = {}
    for name, reasons in results.items():
        rewards[name] = _summary(reasons, groups)
        logged = [completion.logged(name) for completion in rows if name in completion.row]
        if all(score is None for score in logged):
            rewards[name].unlogged = len(logged)
    return Report(len(rows), rewards, _flags(rewards, box_format), samples)


def _reason(completion: Completion, name: str) -> Reason:
    row, task = completion.row, REWARDS[name].task
    if "solution" in REWARDS[name].needs and "solution" not in row:
        raise ValueError(f"{completion}: {name} needs the column 'solution'.")
    # ms-swift's log has no task column: NaN for this reward and a score for one of another task.
    if task is not None and name in row and completion.logged(name) is None:
        others = [key for key, other in REWARDS.items() if other.task not in (None, task)]
        if any(completion.logged(key) is not None for key in others):
            return Reason(None, "other_task", "a row that the run gave no score")
    return explain(name, row["completion"], row.get("solution"), **further(row))


def _group(completion: Completion) -> tuple[str, ...] | None:
    """A key for completions of one prompt; None if the row does not name its prompt. Many images
    share a question, so the gold is part of it.
    """
    row = completion.row
    prompt = str(row.get("prompt_id") or row.get("prompt") or "")
    return (prompt, str(row.get("step", "")), gold_text(row.get("solution"))) if prompt else None


def _summary(results: list[Reason], groups: list[tuple[str, ...] | None]) -> RewardSummary:
    others = Counter(reason.text for reason in results if reason.code == "other_task")
    codes = Counter(reason.code for reason in results if reason.code != "other_task")
    scores = [reason.score for reason in results if reason.score is not None]
    summary = RewardSummary(
        scored=len(scores),
        skipped=others.total(),
        other=dict(others.most_common()),
        bad_gold=codes["bad_gold"],
        reasons=dict(codes.most_common()),
    )
    if not scores:
        return summary
    summary.mean, summary.std = fmean(scores), pstdev(scores)
    summary.full = sum(score == 1.0 for score in scores) / len(scores)
    summary.readable = sum(reason.was_read for reason in results if reason.score is not None)
    summary.parse_rate = summary.readable / len(scores)
    by_group: dict[tuple[str, ...], list[float]] = {}
    for group, reason in zip(groups, results, strict=True):
        if reason.score is not None and group is not None:
            by_group.setdefault(group, []).append(reason.score)
    several = [values for values in by_group.values() if len(values) > 1]
    summary.groups = len(several)
    summary.zero_variance_groups = sum(map(has_zero_variance, several))
    return summary


def _flags(rewards: dict[str, RewardSummary], box_format: BoxFormatCheck) -> list[str]:
    flags: list[str | None] = []
    for name, summary in rewards.items():
        if summary.bad_gold:
            flags.append(f"{name}: {summary.bad_gold} gold solutions cannot be read.")
        if not summary.scored and (summary.skipped or summary.bad_gold):
            what = [f"{count} times {text}" for text, count in summary.other.items()]
            what += [f"{summary.bad_gold} times another gold solution"] * bool(summary.bad_gold)
            flags.append(f"{name}: scored no row, so it teaches nothing: {', '.join(what)}.")
        elif summary.unlogged:
            flags.append(
                f"{name}: the run scored none of its {summary.unlogged} rows, so it taught "
                "nothing: check their column task and their gold solutions."
            )
        flags.append(unreadable(name, summary.readable, summary.scored))
        flags.append(zero_variance(name, summary.groups, summary.zero_variance_groups))
    flags.append(box_format.problem())
    return [flag for flag in flags if flag is not None]
