"""Metrics of predictions, row by row, each as a ratio of sums, so that it can be resampled.

    accuracy = sum(right) / sum(1)      parse rate = sum(read) / sum(1)
    invalid boxes = sum(invalid boxes) / sum(boxes)

Scores and reasons are those of the rewards (diagnostics/reasons.py); average precision is not a
ratio and is in average_precision.py. Intervals are from a bootstrap over images, since the rows of
an image are correlated; all metrics, and both sides of a comparison, use the same draws.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.evaluation.annotations import Gold
from swift_vlrft.evaluation.average_precision import CocoScores, coco_scores
from swift_vlrft.evaluation.detections import detection_boxes
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction, Predictions, Problems
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import Answer, BoxList, read
from swift_vlrft.rewards import REWARDS, TASK_NAMES
from swift_vlrft.rewards.grounding import overlaps
from swift_vlrft.rewards.matching import read_gold

Array = NDArray[np.float64]

PRIMARY = {
    "detection": "vlrft_detection_iou",
    "grounding": "vlrft_grounding_iou",
    "classification": "vlrft_classification",
    "counting": "vlrft_counting",
}
"""The reward whose score and reason is shown for a row."""

NOT_SCORED = {
    "bad_gold": "gold solutions that cannot be read, not scored",
    "incomplete_gold": "rows of a crowd or of a category not fully annotated, in AP only",
}
"""Codes of rows that are excluded from every ratio, with their notes."""

SUBSTRING = "published_substring_rule"
"""Visual-RFT's scorer, only for comparison with its published numbers: it accepts "a"."""

MOST_ERROR = 1e6
"""Largest error of a count, so that a mean stays finite."""

DRAWS = 1000
MOST_NUMBERS = 50_000_000
"""Limit of the table of draws: with more images there are fewer draws."""


def ratio(column: Array) -> float | None:
    """The metric of a (rows, 2) column of numerators and denominators."""
    top, bottom = column.sum(axis=0).tolist()
    return top / bottom if bottom else None


def resamples(n_units: int, bootstrap: int = DRAWS, seed: int = 0) -> Array:
    """Draws of ``n_units`` images with replacement: (draws, images) counts."""
    count = max(1, min(bootstrap, MOST_NUMBERS // max(n_units, 1)))
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(n_units, np.full(n_units, 1.0 / n_units), size=count)
    return np.asarray(drawn, np.float64)


def interval(estimates: Array) -> tuple[float, float] | tuple[None, None]:
    """The middle 95 % of the draws; None if more than half of them are NaN."""
    usable = estimates[np.isfinite(estimates)]
    if len(usable) < max(2, len(estimates) / 2):
        return None, None
    low, high = np.quantile(usable, [(1 - 0.95) / 2, (1 + 0.95) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Table:
    """Every metric as a (rows, 2) column; ``unit`` is the image of each row, in ``units``."""

    predictions: Predictions
    unit: NDArray[np.int64]
    units: list[str]
    ratios: dict[str, Array]
    classes: dict[str, dict[str, Array]]
    reasons: list[Reason]
    problems: Problems
    ap: CocoScores | None
    sizes_known: bool
    protocol: str | None
    """Of detection."""

    def resampled(self, weights: Array) -> dict[str, Array]:
        """Every metric for every draw, NaN without denominator; ``weights``: (draws, images)."""
        drawn = {} if self.ap is None else self.ap.resampled(weights)
        n = len(self.units)
        for name, column in self.ratios.items():
            top, bottom = (weights @ np.bincount(self.unit, side, n) for side in column.T)
            drawn[name] = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), np.nan)
        return drawn

    @property
    def values(self) -> dict[str, float | None]:
        """Every metric; AP by size only if the images' sizes are known."""
        ap = {} if self.ap is None else self.ap.mean
        known = {n: v if self.sizes_known or n[:3] != "AP_" else None for n, v in ap.items()}
        return known | {name: ratio(column) for name, column in self.ratios.items()}


def build_table(predictions: Predictions, gold: Gold) -> Table:
    """Every metric of the predictions. EvaluationError if they have no such gold."""
    task, boxes, protocol = predictions.task, None, None
    if task == "detection":
        predictions, boxes, protocol = detection_boxes(predictions, gold)
    elif gold.protocol or gold.annotations or gold.categories:
        raise EvaluationError(
            "--protocol, --categories and annotations are of detection; these predictions are of "
            f"{task}"
        )
    rows = predictions.rows
    problems = predictions.problems.joined()
    reasons = [reason_of(task, row) for row in rows]
    for row, reason in zip(rows, reasons, strict=True):
        if reason.code in NOT_SCORED:
            problems.add(NOT_SCORED[reason.code], row.id)
    units = sorted({row.image_id for row in rows} | set(boxes.units.values() if boxes else ()))
    place = {name: n for n, name in enumerate(units)}
    ap = None
    if boxes is not None:
        drawn_by = {image: place[name] for image, name in boxes.units.items()}
        ap = coco_scores(boxes.gold, boxes.predicted, drawn_by.keys(), boxes.categories, drawn_by)
    unit = np.array([place[row.image_id] for row in rows], np.int64)
    ratios = _ratios(task, rows, reasons)
    classes, sizes_known = _classes(task, rows, ratios), boxes is None or boxes.sizes_known
    columns = unit, units, ratios, classes, reasons
    return Table(predictions, *columns, problems, ap, sizes_known, protocol)


def reason_of(task: str, row: Prediction) -> Reason:
    """Score of a row under the task's primary reward, and why."""
    if row.incomplete:
        return Reason(None, "incomplete_gold", "the annotations do not say every object")
    extra = {"aliases": row.aliases} if row.aliases is not None else {}
    return explain(PRIMARY[task], row.completion, row.solution, **extra)


def _ratios(task: str, rows: list[Prediction], reasons: list[Reason]) -> dict[str, Array]:
    completions, solutions = [row.completion for row in rows], [row.solution for row in rows]
    columns = {"aliases": [row.aliases for row in rows]} if any(row.aliases for row in rows) else {}
    rewards = {
        name: function(completions, solutions, **columns)
        for name, function in REWARDS.items()
        # A reward that changes during training has no mean.
        if (function.task is None or function.task.name == task)
        and not function.changes_in_training
    }
    table: dict[str, list[tuple[float, float]]] = {}
    for n, (row, reason) in enumerate(zip(rows, reasons, strict=True)):
        if reason.code in NOT_SCORED:
            continue
        scores = {name: values[n] or 0.0 for name, values in rewards.items()}
        for name, value in (_metrics(task, row, reason, scores) | scores).items():
            column = table.setdefault(name, [(0.0, 0.0)] * len(rows))
            column[n] = value if isinstance(value, tuple) else (float(value), 1.0)
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
    shown = ["accuracy", SUBSTRING, PRIMARY["detection"], "vlrft_detection_f1"]
    labels = np.array(names, dtype=object)
    return {
        name: {m: ratios[m] * (labels == name)[:, None] for m in shown if m in ratios}
        for name in sorted(set(names) - {""})
    }


# ---- one row ---------------------------------------------------------------------------------

Metrics = dict[str, float | tuple[float, float]]
"""A value to average, or numerator and denominator."""


def _metrics(task: str, row: Prediction, reason: Reason, rewards: dict[str, float]) -> Metrics:
    answer, score = read(row.completion), reason.score or 0.0
    boxes = answer.boxes or BoxList()
    metrics: Metrics = {}
    if task == "classification":
        metrics = {"accuracy": score, SUBSTRING: substring_rule(row.completion, row.solution)}
    elif task == "counting":
        number, gold = answer.number, TASK_NAMES[task].read_gold(row.solution)
        error = (0.0, 0.0) if number is None else (min(abs(number - gold), MOST_ERROR), 1.0)
        metrics = {"accuracy": score, "mean_absolute_error": error}
    elif task == "grounding":
        gold = TASK_NAMES[task].read_gold(row.solution)
        ious = overlaps(answer, gold)
        metrics = {
            "acc50": rewards["vlrft_grounding_acc50"],
            "acc75": len(ious) == 1 and ious[0] >= 0.75 - 1e-9,
            "mean_iou": score,
            # The reward is (1 + GIoU) / 2, 0 for unreadable text: back to [-1, 1].
            "mean_giou": 2.0 * rewards["vlrft_grounding_giou"] - 1.0,
            "cumulative_iou": _areas(row, gold, answer),
        }
    metrics |= {"parse_rate": reason.was_read, "mean_characters": len(row.completion)}
    if row.tokens is not None:
        metrics["mean_tokens"] = row.tokens
    if row.finish is not None:
        metrics["truncated_rate"] = row.finish == "length"
    if task not in ("detection", "grounding"):
        return metrics | {"empty_prediction_rate": answer.label in ("no objects", "none")}
    empty = float(answer.boxes is not None and not boxes.boxes)
    metrics["empty_prediction_rate"] = empty
    metrics["invalid_box_rate"] = (boxes.boxes.count(None), len(boxes))
    metrics["boxes_per_answer"] = len(boxes)
    if task == "detection":
        nothing = float(not len(read_gold(row.solution) or ()))
        metrics["right_empty_prediction_rate"] = (empty * nothing, nothing)
        metrics["false_empty_prediction_rate"] = (empty * (1 - nothing), 1 - nothing)
    return metrics


def substring_rule(completion: str, gold: str) -> bool:
    """Visual-RFT's rule: lower case, no blanks and underscores, one text contains the other. The
    first answer block counts, and only one without a line break.
    """
    block = re.search(r"<answer>(.*?)</answer>", completion)
    if block is None:
        return False
    answer, gold = (text.replace(" ", "").replace("_", "").lower() for text in (block[1], gold))
    return gold in answer or answer in gold


def _areas(row: Prediction, gold: Box, answer: Answer) -> tuple[float, float]:
    """Intersection and union of gold and answered boxes; in pixels if the image's size is known."""
    image, scale = float("inf"), 1.0
    if row.box_range is not None:
        image = row.box_range[0] * row.box_range[1]
        scale = row.size[0] * row.size[1] / image if row.size is not None else 1.0

    def area(x1: float, y1: float, x2: float, y2: float) -> float:
        return max(x2 - x1, 0.0) * max(y2 - y1, 0.0)

    boxes = [box for box in (answer.boxes or BoxList()).boxes if box is not None]
    shared = [
        area(*map(max, box[:2], gold[:2]), *map(min, box[2:], gold[2:]))  # type: ignore[call-arg]
        for box in boxes
    ]
    best, of_gold = max(shared, default=0.0), area(*gold)
    # Boxes beyond the image must not dominate the other rows.
    total = min(sum(area(*box) for box in boxes), max(image, of_gold))
    return best * scale, (of_gold + total - best) * scale
