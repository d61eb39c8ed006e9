"""Is B better than A? Differences of every metric over the rows that both answered.

    A  accuracy 0.42      B  accuracy 1.00      difference +0.58 (+0.47 to +0.70)

Intervals are of the paired differences over images. Flips are rows whose score crosses 0.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from swift_vlrft.diagnostics.health import LEAST, Finding, Health, judge
from swift_vlrft.evaluation.annotations import GOLD_OF_ROWS, Gold
from swift_vlrft.evaluation.intervals import intervals, resamples
from swift_vlrft.evaluation.joined import by_id, of_other_image, same_gold
from swift_vlrft.evaluation.metrics import Table, build_table
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction, Predictions
from swift_vlrft.evaluation.run import open_runs
from swift_vlrft.evaluation.settings import DRAWS
from swift_vlrft.rewards import PAYING, TASK_NAMES

RIGHT = 0.5


class Flip(msgspec.Struct, frozen=True):
    """Holds a row's two scores, and the reasons for lost points."""

    id: str
    a: float
    b: float
    why_a: str
    why_b: str


class Difference(msgspec.Struct, frozen=True):
    """Holds a metric before and after, and the 95 % interval of its difference."""

    a: float | None
    b: float | None
    difference: float | None
    low: float | None = None
    high: float | None = None

    @property
    def significant(self) -> bool:
        """Return whether the interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def direction(self) -> int:
        """Return 1 if the metric rose significantly, -1 if it fell, else 0."""
        return (1 if (self.difference or 0) > 0 else -1) if self.significant else 0


class Verdict(msgspec.Struct, frozen=True):
    """Holds the verdict: ``word`` is better, not proven, or worse."""

    word: str
    why: str


class Comparison(msgspec.Struct):
    verdict: Verdict
    task: str
    headline: str
    rows: int
    images: int
    only_a: int
    only_b: int
    metrics: dict[str, Difference]
    gained: list[Flip]
    lost: list[Flip]
    changed: list[Flip] = []
    """Every row whose score differs, the largest gain first."""
    bootstrap: int = DRAWS
    protocol: str | None = None
    notes: list[str] = []


def compare(a: Predictions, b: Predictions, gold: Gold = GOLD_OF_ROWS, **draws: int) -> Comparison:
    """Compare the metrics of A and B over the rows with the same ids.

    ``draws``: bootstrap and seed. EvaluationError if A and B answer different queries.
    """
    if a.task != b.task:
        raise EvaluationError(f"A answers {a.task}, B {b.task}: their metrics are not comparable")
    boxes_alone = a.detections is not None
    if boxes_alone != (b.detections is not None):
        raise EvaluationError(
            f"{'A' if boxes_alone else 'B'} is a list of boxes, and {'B' if boxes_alone else 'A'} "
            "holds completions: compare two of a kind"
        )
    rows_a, rows_b = ([], []) if boxes_alone else _paired(a, b)
    first, second = (
        build_table(replace(side, rows=rows), gold) for side, rows in ((a, rows_a), (b, rows_b))
    )
    if rows_a and all(reason.score is None for reason in (*first.reasons, *second.reasons)):
        raise EvaluationError(
            "no row of A or B has gold that can be read: score each with `vlrft eval --predictions "
            "FILE --gold SET --out DIR`, and compare the two folders"
        )
    weights = resamples(len(first.units), **draws)
    bounds = intervals(second, weights, first)
    metrics = {}
    for name in (name for name in first.values if name in second.values):
        before, after = first.values[name], second.values[name]
        apart = None if before is None or after is None else after - before
        metrics[name] = Difference(before, after, apart, *bounds.get(name, ()))
    flips = []
    others = dict(zip((row.id for row in second.predictions.rows), second.reasons, strict=True))
    for row, reason in zip(first.predictions.rows, first.reasons, strict=True):
        other = others.get(row.id, reason)
        if reason.score is not None and other.score is not None and reason.score != other.score:
            flips.append(Flip(row.id, reason.score, other.score, reason.text, other.text))
    flips.sort(key=lambda flip: (flip.a - flip.b, flip.id))
    scored = first.predictions.rows
    reward, headline = PAYING[a.task][0], TASK_NAMES[a.task].headline
    return Comparison(
        verdict=verdict(
            metrics, headline, reward, len(scored or first.units), _finding(second, metrics)
        ),
        task=a.task,
        headline=headline,
        rows=len(scored),
        images=len(first.units),
        only_a=len(a.rows) - len(rows_a),
        only_b=len(b.rows) - len(rows_b),
        metrics=metrics,
        gained=[flip for flip in flips if flip.a < RIGHT <= flip.b],
        lost=[flip for flip in reversed(flips) if flip.b < RIGHT <= flip.a],
        changed=flips,
        bootstrap=len(weights),
        protocol=first.boxes.protocol,
        notes=list(dict.fromkeys(first.predictions.notes + second.predictions.notes)),
    )


def verdict(
    metrics: Mapping[str, Difference], headline: str, reward: str, rows: int, after: Finding | None
) -> Verdict:
    """Return the verdict on a comparison of so many rows.

    ``after``: the finding on B's answers. A model that has collapsed is not better, whatever rose.
    """
    d, paid = (metrics.get(name, Difference(None, None, None)) for name in (headline, reward))
    told = f"{headline} cannot be computed on both sides"
    if d.a is not None and d.b is not None:
        told = f"{headline} {d.a:.3f} -> {d.b:.3f}"
    if d.low is not None and d.high is not None:
        told += f" (difference {d.low:+.3f} to {d.high:+.3f})"
    if after is not None and after.code == "collapse":
        return Verdict("not proven" if d.direction > 0 else "worse", f"{after.text}; {told}")
    word = {1: "better", 0: "not proven", -1: "worse"}[d.direction]
    why = [told]
    if paid.direction > 0 and (d.difference or 0.0) <= 0:
        why.append(f"{reward} rose by {paid.difference:+.3f}, so it pays for something else")
    elif paid.direction < 0 < d.direction:
        word = "not proven"
        why.append(f"{reward} fell by {paid.difference:+.3f}")
    elif rows < LEAST:
        word = "not proven"
        why.append(f"{rows} rows are too few")
    elif not d.direction and d.difference is not None:
        why.append("the difference may be chance")
    if after is not None:
        why.append(after.text)
    return Verdict(word, "; ".join(why))


def _finding(after: Table, metrics: dict[str, Difference]) -> Finding | None:
    """The finding on B's answers, if A's are those of the first step."""
    reward = PAYING[after.predictions.task][0]
    health = Health(reward, sampled=False)
    for row, reason in zip(after.predictions.rows, after.reasons, strict=True):
        width, height = row.seen or (row.width, row.height)
        columns = {"frame": row.box_format, "width": width, "height": height}
        health.add({"completion": row.completion, "solution": row.solution} | columns, reason)
    facts = health.facts()
    of = metrics.get(reward)
    if of is not None and of.a is not None and of.b is not None:
        facts = replace(facts, score=(of.a, of.b))
    return health.explained(judge(facts))


def compare_runs(a: Path, b: Path, *, task: str | None = None, **draws: int) -> Comparison:
    """Compare files of predictions, or folders of runs, with the gold that A's folder names."""
    first, second = open_runs([a, b], task)
    result = compare(first.predictions, second.predictions, first.gold, **draws)
    limits = [run.manifest.settings.resolution for run in (first, second) if run.manifest]
    if limits[1:] and limits[0] != limits[1]:
        result.notes.insert(0, f"the images were shown at {limits[0]} in A, at {limits[1]} in B")
    return result


def _paired(a: Predictions, b: Predictions) -> tuple[list[Prediction], list[Prediction]]:
    """The rows of both sides with the same ids, in one order."""
    rows, others = by_id(a.rows, "A"), by_id(b.rows, "B")
    pairs = [(row, others[key]) for key, row in rows.items() if key in others]
    if not pairs:
        some = [", ".join(row.id for row in side.rows[:3]) for side in (a, b)]
        raise EvaluationError(f"A and B share no row: A has ids like {some[0]}, B like {some[1]}")
    wrong = [
        first
        for first, second in pairs
        if of_other_image(first, second) or not same_gold(first.solution, second.solution)
    ]
    if wrong:
        raise EvaluationError(
            f"{len(wrong)} of {len(pairs)} shared rows have another image or solution in B (row "
            f"{wrong[0].id}): A and B were not made on the same data set, in one box format"
        )
    # If the files describe the query differently, A's description is used.
    renamed = [
        msgspec.structs.replace(
            second, id=first.id, image_id=first.image_id, category=first.category or second.category
        )
        for first, second in pairs
    ]
    return [first for first, _ in pairs], renamed
