"""Is B better than A? Differences of every metric over the rows that both answered.

    A  accuracy 0.42      B  accuracy 1.00      difference +0.58 (+0.47 to +0.70)

The interval is of a paired bootstrap: each draw takes the same pictures for both. What flipped are
rows whose score crosses one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from swift_vlrft.evaluation.bootstrap import COUNT, interval, ratio_estimates, resamples
from swift_vlrft.evaluation.joined import known_answer
from swift_vlrft.evaluation.pairing import IN_ORDER, gold_key, pair, question_key
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction, Predictions
from swift_vlrft.evaluation.summary import HEADLINES, box_set
from swift_vlrft.evaluation.tables import Table, build_table

RIGHT = 0.5


@dataclass(frozen=True)
class Difference:
    a: float | None
    b: float | None
    difference: float | None
    low: float | None = None
    high: float | None = None

    @property
    def sure(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Flip:
    """One row under both: its score and the reason for what is missing."""

    id: str
    a: float
    b: float
    why_a: str
    why_b: str


@dataclass
class Comparison:
    task: str
    headline: str
    rows: int
    images: int
    only_a: int
    only_b: int
    metrics: dict[str, Difference]
    gained: list[Flip]
    lost: list[Flip]
    changed: list[Flip] = field(default_factory=list)
    """Every row whose score differs, the largest gain first."""
    bootstrap: int = COUNT
    protocol: str | None = None
    other_prompts: int = 0
    """Rows that were asked in other words in B."""
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    a: Predictions,
    b: Predictions,
    *,
    annotations: Path | None = None,
    categories: Sequence[str] = (),
    protocol: str | None = None,
    bootstrap: int = COUNT,
    seed: int = 0,
) -> Comparison:
    """EvaluationError where the two answer different questions."""
    if a.task != b.task:
        raise EvaluationError(f"A is of {a.task}, B of {b.task}: their metrics do not compare")
    if a.detections is not None or b.detections is not None:
        raise EvaluationError(
            "a list of boxes holds no rows to pair; compare predictions that hold completions"
        )
    rows_a, rows_b, only_a, only_b = _paired(a, b)
    tables: list[Table] = []
    for side, rows in ((a, rows_a), (b, rows_b)):
        part = Predictions(side.task, rows, side.form, side.problems)
        boxes, protocol = box_set(
            part, annotations=annotations, categories=categories, protocol=protocol
        )
        tables.append(build_table(part, boxes))
    first, second = tables
    weights = resamples(len(first.units), bootstrap, seed)
    metrics: dict[str, Difference] = {}
    if first.ap is not None and second.ap is not None:
        drawn_a = first.matches.average_precision(weights) if first.matches else {}
        drawn_b = second.matches.average_precision(weights) if second.matches else {}
        sizes = all(side.boxes is None or side.boxes.sizes_known for side in tables)
        for name, value in first.ap.mean.items():
            if name.startswith("AP_") and not sizes:
                metrics[name] = Difference(None, None, None)
                continue
            draws = drawn_b[name] - drawn_a[name] if name in drawn_a else None
            metrics[name] = _difference(value, second.ap.mean[name], draws)
    for name, ratio in first.ratios.items():
        if name in second.ratios:
            other = second.ratios[name]
            draws = ratio_estimates(*second.per_unit(other), weights) - ratio_estimates(
                *first.per_unit(ratio), weights
            )
            metrics[name] = _difference(ratio.value, other.value, draws)
    flips = _flips(first, second)
    return Comparison(
        task=a.task,
        headline=HEADLINES[a.task],
        rows=len(first.rows),
        images=len(first.units),
        only_a=only_a,
        only_b=only_b,
        metrics=metrics,
        gained=[flip for flip in flips if flip.a < RIGHT <= flip.b],
        lost=[flip for flip in reversed(flips) if flip.b < RIGHT <= flip.a],
        changed=flips,
        bootstrap=len(weights),
        protocol=protocol,
        notes=list(dict.fromkeys(a.notes + b.notes)),
        other_prompts=sum(
            bool(one.prompt and other.prompt)
            and question_key(one.prompt) != question_key(other.prompt)
            for one, other in zip(first.rows, second.rows, strict=True)
        ),
    )


def _paired(a: Predictions, b: Predictions) -> tuple[list[Prediction], list[Prediction], int, int]:
    if not all(row.stated for side in (a, b) for row in side.rows):
        _give_ids(a, b)
    by_id = {row.id: row for row in b.rows}
    pairs = [(row, by_id[row.id]) for row in a.rows if row.id in by_id]
    if not pairs:
        raise EvaluationError(f"A and B share no row: A has ids like {_some(a)}, B like {_some(b)}")
    wrong = [one for one, other in pairs if gold_key(one.solution) != gold_key(other.solution)]
    if wrong:
        frames = {row.frame for side in (a, b) for row in side.rows}
        hint = (
            f"; boxes are asked in {' and '.join(sorted(map(str, frames)))}: evaluate both with or "
            "both without `:pixels`"
            if len(frames) > 1
            else ""
        )
        raise EvaluationError(
            f"{len(wrong)} of {len(pairs)} shared rows have another solution in B (row "
            f"{wrong[0].id}): A and B were not made on the same data set{hint}"
        )
    for one, other in pairs:
        # Without an id of its own a picture is told apart by what each file says of it.
        other.image_id = one.image_id
    return (
        [one for one, _ in pairs],
        [other for _, other in pairs],
        len(a.rows) - len(pairs),
        len(b.rows) - len(pairs),
    )


def _give_ids(a: Predictions, b: Predictions) -> None:
    """Rows of files without ids (`swift infer`, ms-swift's log): B's are named as those of A that
    answer the same.
    """
    frames = {row.frame for side in (a, b) for row in side.rows} - {None}
    rows, answers = ([known_answer(row, frames=frames) for row in side.rows] for side in (a, b))
    for name, side in (("A", rows), ("B", answers)):
        for known in side:
            known.place = known.place.replace("the predictions", name)
    made = pair(answers, rows, any_question=True)
    for n, (row, paired) in enumerate(zip(b.rows, made.rows, strict=True)):
        row.id = a.rows[paired].id if paired is not None else f"B {n}"
    if made.in_order:
        b.notes.append(f"{len(made.in_order)} rows of B were paired with A's by order{IN_ORDER}")


def _some(predictions: Predictions) -> str:
    return ", ".join(row.id for row in predictions.rows[:3])


def _difference(a: float | None, b: float | None, draws: Any) -> Difference:
    if a is None or b is None:
        return Difference(a, b, None)
    bounds = None if draws is None else interval(np.asarray(draws))
    return Difference(a, b, b - a, *(bounds or (None, None)))


def _flips(first: Table, second: Table) -> list[Flip]:
    places = {row.id: n for n, row in enumerate(second.rows)}
    flips = []
    for n, row in enumerate(first.rows):
        m = places.get(row.id)
        before = first.reasons[n]
        if m is None or before.score is None or (after := second.reasons[m]).score is None:
            continue
        if before.score != after.score:
            flips.append(Flip(row.id, before.score, after.score, before.text, after.text))
    return sorted(flips, key=lambda flip: (flip.a - flip.b, flip.id))
