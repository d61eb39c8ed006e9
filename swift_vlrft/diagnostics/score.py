"""Score completions offline: why is my reward 0?

    report = score_file(Path("output/completions.jsonl"), ["vlrft_detection_iou"])
    report.rewards["vlrft_detection_iou"].mean, report.flags

The file is read by files/completions.py: ms-swift's own log, or one object per completion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean, pstdev
from types import MappingProxyType
from typing import Any

import msgspec

from swift_vlrft.diagnostics.health import (
    Finding,
    Health,
    by_group,
    distinct,
    group_of,
    has_no_variance,
)
from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.files.completions import Completion, read_completions
from swift_vlrft.files.jsonl import finite
from swift_vlrft.parsing.answers import gold_text, read
from swift_vlrft.parsing.turns import earlier_turns
from swift_vlrft.rewards import PAYING, REWARDS, RewardFunction, reward_columns

EMPTY: Mapping[str, RewardFunction] = MappingProxyType({})


class RewardSummary(msgspec.Struct):
    """Summarises one reward over all rows of its task; ``std`` is over completions."""

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
    parse_rate: float | None = None
    reasons: dict[str, int] = {}


class Sample(msgspec.Struct):
    """Holds a completion that lost points under one reward."""

    line: str
    reward: str
    score: float | None
    code: str
    reason: str
    completion: str
    solution: str


class TaskFigures(msgspec.Struct):
    """Holds means over the completions of a task: some learn, and some do not.

    ``zero_variance`` is the share of its groups whose completions all have the same reward, and
    teach nothing.
    """

    share: float
    completions: int
    reward: float | None
    length: float
    parse_rate: float | None
    groups: int
    zero_variance: float | None


class Report(msgspec.Struct):
    """Holds what ``vlrft score`` prints. ``findings`` and ``flags`` ruin a run; ``notes``: lines
    that were left out, and what the file does not tell; ``tasks``: each task's figures, of the
    unweighted sum of the rewards and with lengths in characters.
    """

    rows: int
    rewards: dict[str, RewardSummary]
    flags: list[str]
    samples: list[Sample] = []
    findings: list[Finding] = []
    notes: list[str] = []
    tasks: dict[str, TaskFigures] = {}


def score_file(
    path: Path, names: Sequence[str] = (), show: int = 0, own: Mapping[str, RewardFunction] = EMPTY
) -> Report:
    """Score a file under ``names``, else under the rewards that it has columns for.

    Where it has none: under ``own``, those of a plugin, else under the first of each task that its
    rows state.
    """
    notes: list[str] = []
    rows = list(read_completions(path, notes))
    if not rows:
        raise ValueError(f"{path} holds no completions.")
    known = (*REWARDS, *own)
    names = names or [name for name in known if any(name in row.row for row in rows)] or [*own]
    if not names:
        names = [PAYING[task][0] for task in PAYING if any(task == r.row.get("task") for r in rows)]
    if not names:
        raise ValueError(
            f"{path} names no reward of this package, and no task; say which with --reward. "
            f"Known: {', '.join(REWARDS)}."
        )
    report = score_completions(rows, names, show, own)
    report.notes = notes + report.notes
    return report


def score_completions(
    completions: Iterable[Completion],
    names: Sequence[str],
    show: int = 0,
    own: Mapping[str, RewardFunction] = EMPTY,
) -> Report:
    """Score every completion under every reward, and keep ``show`` samples that lost points.
    ValueError: an unknown reward, or a row without a column that is needed.
    """
    known = (*own, *REWARDS)
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"unknown reward {unknown[0]!r}; known: {', '.join(known)}.")
    rows = list(completions)
    for completion in rows:
        if "completion" not in completion.row:
            keys = ", ".join(completion.row)
            raise ValueError(f"{completion}: no key 'completion' (found: {keys}).")
    results = {
        name: _under_own(name, own[name], rows)
        if name in own
        else [_reason(completion, name) for completion in rows]
        for name in names
    }
    of_rows = [{name: of[n] for name, of in results.items()} for n in range(len(rows))]
    report = Report(len(rows), {}, [], tasks=_by_task(rows, of_rows))
    lost = (
        Sample(completion.place, name, why.score, why.code, why.text, *_texts(completion.row))
        for completion, reasons in zip(rows, of_rows, strict=True)
        for name, why in reasons.items()
        if why.code not in ("ok", "other_task")
    )
    report.samples = list(islice(lost, show))
    groups = [group_of(completion.row) for completion in rows]
    sampled = any("step" in completion.row for completion in rows)
    findings, unread = [], []
    for name, reasons in results.items():
        health = Health(name, sampled=sampled)
        for completion, reason, group in zip(rows, reasons, groups, strict=True):
            health.add(completion.row, reason, group)
        findings.append(health.finding())
        unread += health.unread()
        summary = report.rewards[name] = _summary(reasons)
        logged = [completion.logged(name) for completion in rows if name in completion.row]
        if all(score is None for score in logged):
            summary.unlogged = len(logged)
        report.flags += _unscored(name, summary)
    report.findings = distinct(findings)
    report.notes += map(str, distinct(unread))
    return report


def _texts(row: Mapping[str, Any]) -> tuple[str, str]:
    said = [turn["text"] for turn in earlier_turns(row.get("turns"))]
    return "\n".join([*said, read(row["completion"]).completion]), gold_text(row.get("solution"))


def _reason(completion: Completion, name: str) -> Reason:
    row, task = completion.row, REWARDS[name].task
    if "solution" in REWARDS[name].needs and "solution" not in row:
        raise ValueError(f"{completion}: {name} needs the column 'solution'.")
    # ms-swift's log has no task column: NaN for this reward and a score for one of another task.
    if task is not None and name in row and completion.logged(name) is None:
        others = [key for key, other in REWARDS.items() if other.task not in (None, task)]
        if any(completion.logged(key) is not None for key in others):
            return Reason(None, "other_task", "a row that the run gave no score")
    return explain(name, row["completion"], row.get("solution"), **reward_columns(row))


def _under_own(name: str, function: RewardFunction, rows: Sequence[Completion]) -> Sequence[Reason]:
    """Its scores of all rows at once, with every column, as ms-swift asks for them."""
    keys = dict.fromkeys(key for row in rows for key in row.row if key != "completion")
    texts = [_texts(row.row)[0] for row in rows]
    try:
        scores = function(texts, **{key: [row.row.get(key) for row in rows] for key in keys})
        scores = [None if score is None else finite(float(score)) for score in scores]
    except Exception as error:
        raise ValueError(f"{name}: this reward of a plugin failed: {error!r}") from error
    if len(scores) != len(rows):
        raise ValueError(f"{name}: {len(scores)} scores for {len(rows)} completions")
    return [
        Reason(score, "other_task", "no score of its own")
        if score is None
        else Reason(score, "ok" if score == 1.0 else "own", f"a reward of a plugin: {score:g}")
        for score in scores
    ]


def _by_task(
    rows: Sequence[Completion], of_rows: Sequence[dict[str, Reason]]
) -> dict[str, TaskFigures]:
    """The figures of each task that a row states, or that a reward of a task scored."""
    by_name: dict[str, list[tuple[Completion, list[float], bool | None]]] = {}
    for completion, reasons in zip(rows, of_rows, strict=True):
        scored = {name: why for name, why in reasons.items() if why.score is not None}
        tasks = {n: REWARDS[n].task for n in scored if n in REWARDS and REWARDS[n].task}
        name, task = next(iter(tasks.items()), ("", None))
        scores = [why.score for why in scored.values() if why.score is not None]
        read_or_not = scored[name].was_read if task else None
        stated = str(completion.row.get("task") or (task.name if task else ""))
        by_name.setdefault(stated, []).append((completion, scores, read_or_not))
    return {name: _figures(by_name[name], len(rows)) for name in sorted(by_name)}


def _figures(rows: list[tuple[Completion, list[float], bool | None]], total: int) -> TaskFigures:
    sums = [(group_of(completion.row), sum(scores)) for completion, scores, _ in rows if scores]
    equal = [has_no_variance(group) for group in by_group(sums) if len(group) > 1]
    return TaskFigures(
        share=len(rows) / total,
        completions=len(rows),
        reward=_mean([reward for _, reward in sums]),
        length=fmean(len(_texts(completion.row)[0]) for completion, *_ in rows),
        parse_rate=_mean([was_read for *_, was_read in rows if was_read is not None]),
        groups=len(equal),
        zero_variance=_mean(equal),
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _summary(reasons: Sequence[Reason]) -> RewardSummary:
    others = Counter(reason.text for reason in reasons if reason.code == "other_task")
    codes = Counter(reason.code for reason in reasons if reason.code != "other_task")
    scores = [reason.score for reason in reasons if reason.score is not None]
    summary = RewardSummary(
        scored=len(scores),
        skipped=others.total(),
        other=dict(others.most_common()),
        bad_gold=codes["bad_gold"],
        reasons=dict(codes.most_common()),
    )
    if scores:
        summary.mean, summary.std = fmean(scores), pstdev(scores)
        summary.full = scores.count(1.0) / len(scores)
        summary.parse_rate = fmean(r.was_read for r in reasons if r.score is not None)
    return summary


def _unscored(name: str, summary: RewardSummary) -> Iterator[str]:
    if summary.bad_gold:
        yield f"{name}: {summary.bad_gold} gold solutions cannot be read."
    if not summary.scored and (summary.skipped or summary.bad_gold):
        what = [f"{count} times {text}" for text, count in summary.other.items()]
        what += [f"{summary.bad_gold} times another gold solution"] * bool(summary.bad_gold)
        yield f"{name}: scored no row, so it teaches nothing: {', '.join(what)}."
    elif summary.unlogged:
        yield (
            f"{name}: the run scored none of its {summary.unlogged} rows, so it taught nothing: "
            "check their column task and their gold solutions."
        )
