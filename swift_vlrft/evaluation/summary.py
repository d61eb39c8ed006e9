"""Summarise predictions, as `vlrft eval` prints and writes it.

    summarise(read_predictions(file)).metrics["accuracy"]    Measure(value=0.8, low=0.7, high=0.9)

``low`` and ``high`` bound the 95 % interval over images (intervals.py).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from swift_vlrft.evaluation.annotations import GOLD_OF_ROWS, Gold
from swift_vlrft.evaluation.coco import Scores
from swift_vlrft.evaluation.intervals import intervals, resamples
from swift_vlrft.evaluation.metrics import build_table, ratio
from swift_vlrft.evaluation.predictions import EvaluationError, Predictions
from swift_vlrft.evaluation.settings import DRAWS
from swift_vlrft.rewards import TASK_NAMES

PROTOCOL_NOTES = {
    "all": "protocol all: every query that was asked is scored; boxes of others are not missed",
    "coco": "a list of boxes: every gold box that it lacks is missed, as in COCO's own evaluation",
    "rows": "protocol rows: the queries are those of the data set",
}


class Measure(msgspec.Struct, frozen=True):
    value: float | None
    low: float | None = None
    high: float | None = None


class Summary(msgspec.Struct):
    """Holds ``summary.json``; ``named`` has the first few of each problem."""

    task: str
    rows: int
    images: int
    headline: str
    metrics: dict[str, Measure]
    by_class: dict[str, Scores]
    reasons: dict[str, int]
    problems: dict[str, int]
    named: dict[str, list[str]]
    protocol: str | None = None
    notes: list[str] = []
    bootstrap: int = DRAWS
    run: dict[str, Any] = {}
    """How the predictions were made: model, data set, settings, versions."""

    @property
    def best(self) -> float | None:
        return self.metrics[self.headline].value if self.headline in self.metrics else None


def summarise(
    predictions: Predictions,
    gold: Gold = GOLD_OF_ROWS,
    *,
    bootstrap: int = DRAWS,
    seed: int = 0,
    run: dict[str, Any] | None = None,
) -> Summary:
    """Compute every metric of predictions and its interval; EvaluationError if there is no gold."""
    table = build_table(predictions, gold)
    rows = table.predictions.rows
    of_rows = gold.annotations is None  # else average precision needs no solutions
    if of_rows and rows and all(reason.code == "bad_gold" for reason in table.reasons):
        none = f"no gold solution in any of the {len(rows)} predictions"
        if not any(row.solution for row in rows):
            raise EvaluationError(f"{none}; give the set that they answer with --gold")
        raise EvaluationError(
            f"{none} can be read as {predictions.task} (the first is {rows[0].solution[:60]!r}); "
            "is --task right?"
        )
    weights = resamples(len(table.units), bootstrap, seed) if bootstrap else None
    bounds = {} if weights is None else intervals(table, weights)
    metrics = {name: Measure(value, *bounds.get(name, ())) for name, value in table.values.items()}
    by_class: dict[str, Scores] = {
        name: {metric: ratio(column) for metric, column in columns.items()}
        for name, columns in table.classes.items()
    }
    notes = list(table.predictions.notes)
    codes = Counter(reason.code for reason in table.reasons)
    if (untagged := codes["no_answer"]) * 2 > len(rows):
        notes.append(
            f"{untagged} of {len(rows)} answers have no answer block (<answer>...</answer>), "
            "without which none is read: ask for it in the prompt"
        )
    if table.ap is not None:
        for name, scores in table.ap.by_category.items():
            known = {m: scores[m] for m in ("AP", "AP50", "AP75")}
            by_class[str(name)] = known | by_class.get(str(name), {})
        notes.append(PROTOCOL_NOTES[table.boxes.protocol or "rows"])
        notes += table.ap.notes
        if not table.boxes.sizes_known:
            notes.append("the images' sizes are not known: no AP by size")
    return Summary(
        task=predictions.task,
        rows=len(rows),
        images=len(table.units),
        headline=TASK_NAMES[predictions.task].headline,
        metrics=metrics,
        by_class=dict(sorted(by_class.items())),
        reasons=dict(codes.most_common()),
        problems=dict(table.predictions.problems.counts),
        named=dict(table.predictions.problems.examples),
        protocol=table.boxes.protocol,
        notes=notes,
        bootstrap=0 if weights is None else len(weights),
        run=run or {},
    )
