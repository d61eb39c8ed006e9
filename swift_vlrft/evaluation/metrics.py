"""Compute metrics of predictions row by row: ratios of sums, which can be resampled.

    accuracy = sum(right) / sum(1)      parse rate = sum(read) / sum(1)
    invalid boxes = sum(invalid boxes) / sum(boxes)

Scores and reasons are those of the rewards (diagnostics/reasons.py); average precision is not a
ratio and is in coco.py. Intervals are over images (intervals.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.evaluation.annotations import Gold
from swift_vlrft.evaluation.coco import Array, CocoScores, coco_scores
from swift_vlrft.evaluation.detections import BoxSet, detection_boxes
from swift_vlrft.evaluation.misread import notes_of_answers
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction, Predictions
from swift_vlrft.evaluation.row_metrics import NO_TARGET, TARGET, row_metrics
from swift_vlrft.rewards import PAYING, REWARDS, TASK_NAMES


def ratio(column: Array) -> float | None:
    """Return the metric of a (rows, 2) column of numerators and denominators."""
    top, bottom = column.sum(axis=0).tolist()
    return top / bottom if bottom else None


@dataclass(frozen=True)
class Table:
    """Holds every metric as a (rows, 2) column; ``unit`` is each row's image, in ``units``."""

    predictions: Predictions
    unit: NDArray[np.int64]
    units: list[str]
    ratios: dict[str, Array]
    classes: dict[str, dict[str, Array]]
    reasons: list[Reason]
    boxes: BoxSet
    """Of detection, else empty."""
    ap: CocoScores | None

    @property
    def values(self) -> dict[str, float | None]:
        """Return every metric; AP by size only if the images' sizes are known."""
        ap = {} if self.ap is None else self.ap.mean
        known = {n: v if self.boxes.sizes_known or n[:3] != "AP_" else None for n, v in ap.items()}
        return known | {name: ratio(column) for name, column in self.ratios.items()}


def build_table(predictions: Predictions, gold: Gold) -> Table:
    """Compute every metric of the predictions. EvaluationError if they have no such gold."""
    task, boxes = predictions.task, BoxSet()
    if task == "detection":
        predictions, boxes = detection_boxes(predictions, gold)
    elif gold.annotations or gold.categories:
        raise EvaluationError(
            f"--categories and annotations are for detection; these predictions are for {task}"
        )
    rows = predictions.rows
    notes = notes_of_answers(TASK_NAMES[task], rows) if TASK_NAMES[task].gold_has_boxes else []
    problems = predictions.problems.joined()
    predictions = replace(predictions, notes=[*predictions.notes, *notes], problems=problems)
    reasons = [reason_of(task, row) for row in rows]
    for row, reason in zip(rows, reasons, strict=True):
        if reason.code == "bad_gold":
            problems.add("gold solutions that cannot be read, not scored", row.id)
    units = sorted({row.image_id for row in rows} | set(boxes.units.values()))
    place = {name: n for n, name in enumerate(units)}
    ap = None
    if task == "detection":
        drawn_by = {image: place[name] for image, name in boxes.units.items()}
        ap = coco_scores(boxes.gold, boxes.predicted, drawn_by.keys(), boxes.categories, drawn_by)
    unit = np.array([place[row.image_id] for row in rows], np.int64)
    ratios = _ratios(task, rows, reasons)
    classes = _classes(task, rows, ratios)
    return Table(predictions, unit, units, ratios, classes, reasons, boxes, ap)


def reason_of(task: str, row: Prediction) -> Reason:
    """Return a row's score under the task's primary reward, and why."""
    columns = {"aliases": row.aliases, "tolerance": row.tolerance}
    return explain(PAYING[task][0], row.completion, row.solution, **columns)


def _ratios(task: str, rows: list[Prediction], reasons: list[Reason]) -> dict[str, Array]:
    completions, solutions = [row.completion for row in rows], [row.solution for row in rows]
    names = ("aliases", "tolerance", "turns")
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    in_turns = any(row.turns is not None for row in rows)
    rewards = {
        name: function(completions, solutions, **columns)
        for name, function in REWARDS.items()
        # A reward that changes during training has no mean.
        if (function.task is None or function.task.name == task)
        and not (function.changes_in_training or function.sees_means or function.sees_group)
        and set(function.takes) <= set(names)
        and (in_turns or "turns" not in function.takes)
    }
    table: dict[str, list[tuple[float, float]]] = {}
    for n, (row, reason) in enumerate(zip(rows, reasons, strict=True)):
        if reason.code == "bad_gold":
            continue
        scores = {name: values[n] or 0.0 for name, values in rewards.items()}
        for name, value in (row_metrics(task, row, reason, scores) | scores).items():
            column = table.setdefault(name, [(0.0, 0.0)] * len(rows))
            column[n] = value if isinstance(value, tuple) else (float(value), 1.0)
    if NO_TARGET not in table:  # then every row has a target, and the other says nothing
        table.pop(TARGET, None)
    return {name: np.array(column, np.float64) for name, column in table.items()}


def _classes(
    task: str, rows: list[Prediction], ratios: dict[str, Array]
) -> dict[str, dict[str, Array]]:
    """Metrics of the rows of each class or category."""
    name_of = {
        "detection": lambda row: row.category,
        "classification": lambda row: TASK_NAMES[task].read_gold(row.solution),
        "counting": lambda row: row.solution,
    }
    names = [name_of[task](row) or "" for row in rows] if task in name_of else []
    shown = ["accuracy", PAYING["detection"][0], "vlrft_detection_f1"]
    labels = np.array(names, dtype=object)
    return {
        name: {m: ratios[m] * (labels == name)[:, None] for m in shown if m in ratios}
        for name in sorted(set(names) - {""})
    }
