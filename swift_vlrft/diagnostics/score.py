"""Completions scored offline: why is my reward 0?

    rows = read_rows(Path("output/completions.jsonl"))
    report = score_completions(rows, ["vlrft_detection_iou", "vlrft_format"])
    report.rewards["vlrft_detection_iou"].mean, report.flags

Two forms of JSON Lines are read: ms-swift's own ``completions.jsonl`` (``--log_completions true``:
one object per step, a list per key) and one object per completion with ``completion``,
``solution`` and any further column.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from swift_vlrft.diagnostics.checks import (
    FrameCheck,
    has_boxes,
    unreadable,
    without_spread,
    zero_spread,
)
from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.files.jsonl import completion_entries
from swift_vlrft.parsing.answers import gold_text, read
from swift_vlrft.rewards import REWARDS


@dataclass(slots=True)
class RewardSummary:
    """One reward over all rows of its task. ``spread`` is the standard deviation over
    completions.
    """

    scored: int = 0
    skipped: int = 0
    unlogged: int = 0
    """Rows that the run's log gives no score, if it gives none to any row; else 0."""
    other: dict[str, int] = field(default_factory=dict)
    """What the skipped rows are."""
    bad_gold: int = 0
    mean: float | None = None
    spread: float | None = None
    full: float | None = None
    readable: int = 0
    parse_rate: float | None = None
    groups: int = 0
    groups_without_spread: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Sample:
    """One completion under one reward."""

    line: str
    reward: str
    score: float | None
    code: str
    reason: str
    completion: str
    solution: str


@dataclass(slots=True)
class Report:
    """What ``vlrft score`` prints. ``flags`` are the findings that ruin a run."""

    rows: int
    rewards: dict[str, RewardSummary]
    flags: list[str]
    samples: list[Sample]
    notes: list[str] = field(default_factory=list)
    """What was left out of the file."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_rows(path: Path, notes: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """One dict per completion; ``line`` says where it stood: "3", or "3[0]" in a line that holds
    lists. ``notes`` is told what was left out.

    ValueError names the line that cannot be used.
    """
    for place, entry in completion_entries(path, [] if notes is None else notes):
        if "completion" not in entry:
            keys = ", ".join(entry)
            raise ValueError(f"{path}, line {place}: no key 'completion' (found: {keys}).")
        yield {**entry, "line": place, "file": str(path)}


def score_completions(
    rows: Iterable[dict[str, Any]], names: Sequence[str], show: int = 0
) -> Report:
    """Score every row under every reward of ``names``; keep up to ``show`` samples that lost
    points.

    ValueError: an unknown reward, or a row without a solution where a reward needs one.
    """
    unknown = [name for name in names if name not in REWARDS]
    if unknown:
        raise ValueError(f"unknown reward {unknown[0]!r}; known: {', '.join(REWARDS)}.")
    scored: dict[str, list[tuple[str, Reason]]] = {name: [] for name in names}
    frame = FrameCheck()
    samples: list[Sample] = []
    logged: dict[str, Counter[bool]] = {name: Counter() for name in names}
    count = 0
    for count, row in enumerate(rows, start=1):
        group = str(row.get("prompt_id") or row.get("prompt") or "") + f"@{row.get('step', '')}"
        if not group.startswith("@"):  # the same words are asked of many pictures
            group += f"@{gold_text(row.get('solution'))}"
        for name in names:
            if "solution" in REWARDS[name].needs and "solution" not in row:
                where = f"{row['file']}, " if "file" in row else ""
                raise ValueError(
                    f"{where}line {row.get('line', count)}: {name} needs the column 'solution'."
                )
            extra = {key: row[key] for key in ("task", "aliases") if row.get(key) is not None}
            reason = explain(name, row["completion"], row.get("solution"), **extra)
            if _was_routed(row, name):
                reason = Reason(None, "other_task", "a row that the run gave no score")
            scored[name].append((group, reason))
            lost = reason.code not in ("ok", "other_task")
            if lost and len(samples) < show:
                samples.append(
                    Sample(
                        str(row.get("line", count)),
                        name,
                        reason.score,
                        reason.code,
                        reason.text,
                        read(row["completion"]).completion,
                        gold_text(row.get("solution")),
                    )
                )
        with_boxes = next((name for name in names if has_boxes(name, row.get("task"))), None)
        if with_boxes is not None:
            frame.add_row(with_boxes, row)
        for name in names:
            if name in row:
                logged[name][_missing(row[name])] += 1
    rewards = {name: _summary(results) for name, results in scored.items()}
    for name, summary in rewards.items():
        summary.unlogged = logged[name][True] if not logged[name][False] else 0
    return Report(count, rewards, _flags(rewards, frame), samples)


def _was_routed(row: dict[str, Any], name: str) -> bool:
    """Whether ms-swift's log, which holds no task, says that the row is another reward's: NaN
    under this one, a score under one of another task.
    """

    own = REWARDS[name].task
    return (
        own is not None
        and name in row
        and _missing(row[name])
        and any(
            reward.task not in (None, own) and not _missing(row.get(other))
            for other, reward in REWARDS.items()
        )
    )


def _missing(value: Any) -> bool:
    """What ms-swift logs where a reward gave no score."""
    return value is None or value != value


def _summary(results: list[tuple[str, Reason]]) -> RewardSummary:
    reasons = [reason for _, reason in results]
    scores = [reason.score for reason in reasons if reason.score is not None]
    summary = RewardSummary(
        scored=len(scores),
        skipped=sum(reason.code == "other_task" for reason in reasons),
        other=dict(Counter(r.text for r in reasons if r.code == "other_task").most_common()),
        bad_gold=sum(reason.code == "bad_gold" for reason in reasons),
        reasons=dict(Counter(r.code for r in reasons if r.code != "other_task").most_common()),
    )
    if not scores:
        return summary
    summary.mean, summary.spread = fmean(scores), pstdev(scores)
    summary.full = sum(score == 1.0 for score in scores) / len(scores)
    summary.readable = sum(reason.was_read for reason in reasons if reason.score is not None)
    summary.parse_rate = summary.readable / len(scores)
    by_group: dict[str, list[float]] = {}
    for group, reason in results:
        if reason.score is not None and not group.startswith("@"):
            by_group.setdefault(group, []).append(reason.score)
    groups = [values for values in by_group.values() if len(values) > 1]
    summary.groups = len(groups)
    summary.groups_without_spread = sum(without_spread(values) for values in groups)
    return summary


def _flags(rewards: dict[str, RewardSummary], frame: FrameCheck) -> list[str]:
    flags = []
    for name, summary in rewards.items():
        if summary.bad_gold:
            flags.append(f"{name}: {summary.bad_gold} gold solutions cannot be read.")
        if not summary.scored and (summary.skipped or summary.bad_gold):
            what = [f"{count} times {text}" for text, count in summary.other.items()]
            what += [f"{summary.bad_gold} times another gold solution"] * bool(summary.bad_gold)
            flags.append(f"{name}: scored no row, so it teaches nothing: {', '.join(what)}.")
        elif summary.unlogged:
            flags.append(
                f"{name}: the run gave none of its {summary.unlogged} rows a score, so it taught "
                "nothing: their column task, or their gold solutions, kept them from it."
            )
        flags += [
            problem
            for problem in (
                unreadable(name, summary.readable, summary.scored),
                zero_spread(name, summary.groups, summary.groups_without_spread),
            )
            if problem is not None
        ]
    if (problem := frame.problem()) is not None:
        flags.append(problem)
    return flags
