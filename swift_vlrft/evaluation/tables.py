"""What predictions come to, row by row: every metric as a ratio of sums, so that it can be
resampled.

    accuracy = sum(right) / sum(1)      parse rate = sum(read) / sum(1)
    invalid boxes = sum(invalid boxes) / sum(boxes)

Scores and reasons are the rewards' own (diagnostics/reasons.py); average precision alone is
not a ratio, and lies in average_precision.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.evaluation.average_precision import CocoScores, Matches, coco_scores
from swift_vlrft.evaluation.gold import BoxSet
from swift_vlrft.evaluation.predictions import Prediction, Predictions
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import BoxList, read
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
"""The reward whose score and reason a row is shown with."""


@dataclass(frozen=True)
class Ratio:
    """A metric as two numbers per row."""

    numerator: Array
    denominator: Array

    @property
    def value(self) -> float | None:
        bottom = float(self.denominator.sum())
        return float(self.numerator.sum()) / bottom if bottom else None


@dataclass
class Table:
    """Every metric of a set of predictions; ``unit`` is the picture of each row."""

    task: str
    rows: list[Prediction]
    unit: NDArray[np.int64]
    units: list[str]
    ratios: dict[str, Ratio]
    classes: dict[str, dict[str, Ratio]]
    reasons: list[Reason]
    bad_gold: int = 0
    boxes: BoxSet | None = None
    ap: CocoScores | None = None
    matches: Matches | None = None
    codes: Counter[str] = field(default_factory=Counter)

    def per_unit(self, ratio: Ratio) -> tuple[Array, Array]:
        n = len(self.units)
        top: Array = np.bincount(self.unit, ratio.numerator, n).astype(np.float64)
        bottom: Array = np.bincount(self.unit, ratio.denominator, n).astype(np.float64)
        return top, bottom


NOT_SCORED = {
    "bad_gold": "gold solutions that cannot be read, not scored",
    "incomplete_gold": "rows of a crowd or of a category not wholly annotated, in AP only",
}
"""Codes of rows that stay out of every ratio, and what is said of them."""


def build_table(predictions: Predictions, boxes: BoxSet | None = None) -> Table:
    """``boxes``: gold and predictions of detection for average precision (see gold.py)."""
    task, rows = predictions.task, predictions.rows
    reasons = [_explain(PRIMARY[task], row) for row in rows]
    good = np.array([reason.code not in NOT_SCORED for reason in reasons], bool)
    bad = sum(reason.code == "bad_gold" for reason in reasons)
    for row, reason in zip(rows, reasons, strict=True):
        if reason.code in NOT_SCORED:
            predictions.problems.add(NOT_SCORED[reason.code], row.id)
    units = sorted({row.image_id for row in rows})
    if boxes is not None:
        units = sorted({*units, *boxes.units.values()})
    place = {name: n for n, name in enumerate(units)}
    table = Table(
        task,
        rows,
        np.array([place[row.image_id] for row in rows], np.int64),
        units,
        {},
        {},
        reasons,
        bad,
        boxes,
        codes=Counter(reason.code for reason in reasons),
    )
    if boxes is not None:
        table.ap = coco_scores(boxes.gold, boxes.found, boxes.images, boxes.categories)
        in_place = {image: place[name] for image, name in boxes.units.items()}
        table.matches = Matches(boxes.gold, boxes.found, boxes.images, boxes.categories, in_place)
    if rows:
        one = good.astype(np.float64)
        table.ratios = _TASKS[task](rows, reasons, one) | _common(task, rows, reasons, one)
        table.classes = _classes(task, rows, table.ratios, one)
    return table


def _explain(name: str, row: Prediction) -> Reason:
    if row.incomplete:
        return Reason(None, "incomplete_gold", "the annotations do not say every object")
    extra = {"aliases": row.aliases} if row.aliases is not None else {}
    return explain(name, row.completion, row.solution, **extra)


def _array(values: Sequence[float | None]) -> Array:
    return np.array([0.0 if value is None else value for value in values], np.float64)


def _mean(values: Sequence[float | None], one: Array) -> Ratio:
    return Ratio(_array(values) * one, one)


def _rewards(task: str, rows: list[Prediction], one: Array) -> dict[str, Ratio]:
    """The mean of every reward of the task; a threshold that changes while training has none."""
    completions = [row.completion for row in rows]
    solutions = [row.solution for row in rows]
    columns = {"aliases": [row.aliases for row in rows]} if any(row.aliases for row in rows) else {}
    named = {}
    for name, function in REWARDS.items():
        of = function.task
        if (of is None or of.name == task) and not function.changes_in_training:
            named[name] = _mean(function(completions, solutions, **columns), one)
    return named


def _common(
    task: str, rows: list[Prediction], reasons: list[Reason], one: Array
) -> dict[str, Ratio]:
    ratios = {
        "parse_rate": _mean([float(reason.was_read) for reason in reasons], one),
        "mean_characters": _mean([float(len(row.completion)) for row in rows], one),
    }
    known = _array([float(row.tokens is not None) for row in rows]) * one
    if known.any():
        ratios["mean_tokens"] = Ratio(_array([row.tokens for row in rows]) * known, known)
    ended = _array([float(row.finish is not None) for row in rows]) * one
    if ended.any():
        cut = [float(row.finish == "length") for row in rows]
        ratios["truncated_rate"] = Ratio(_array(cut) * ended, ended)
    answers = [read(row.completion) for row in rows]
    if task in ("detection", "grounding"):
        stated = [answer.boxes for answer in answers]
        refused = [float(boxes is not None and not boxes.boxes) for boxes in stated]
        ratios["refusal_rate"] = _mean(refused, one)
        counts = _array([len(boxes or ()) for boxes in stated]) * one
        invalid = _array([(boxes or BoxList()).boxes.count(None) for boxes in stated]) * one
        ratios["invalid_box_rate"] = Ratio(invalid, counts)
        ratios["boxes_per_answer"] = Ratio(counts, one)
        if task == "detection":
            empty = _array(
                [float(gold is not None and not len(gold)) for gold in map(read_gold, _texts(rows))]
            )
            refusals = _array(refused) * one
            ratios["right_refusal_rate"] = Ratio(refusals * empty, empty * one)
            ratios["false_refusal_rate"] = Ratio(refusals * (1 - empty), (1 - empty) * one)
    else:
        refused = [float(answer.label in ("no objects", "none")) for answer in answers]
        ratios["refusal_rate"] = _mean(refused, one)
    return {**ratios, **_rewards(task, rows, one)}


def _texts(rows: list[Prediction]) -> list[str]:
    return [row.solution for row in rows]


def _classes(
    task: str, rows: list[Prediction], ratios: dict[str, Ratio], one: Array
) -> dict[str, dict[str, Ratio]]:
    """Metrics of the rows of each class or category."""
    if task == "classification":
        names = [TASK_NAMES[task].read_gold(row.solution) or "" for row in rows]
        shown = ["accuracy", SUBSTRING]
    elif task == "detection":
        names = [row.category or "" for row in rows]
        shown = [PRIMARY[task], "vlrft_detection_f1"]
    elif task == "counting":
        names = [row.solution for row in rows]
        shown = ["accuracy"]
    else:
        return {}
    labels = np.array(names, dtype=object)
    made: dict[str, dict[str, Ratio]] = {}
    for name in sorted(set(names) - {""}):
        inside = (labels == name).astype(np.float64) * one
        made[name] = {
            metric: Ratio(ratios[metric].numerator * inside, ratios[metric].denominator * inside)
            for metric in shown
            if metric in ratios
        }
    return made


# ---- the tasks -------------------------------------------------------------------------------

SUBSTRING = "published_substring_rule"
"""Visual-RFT's scorer, for comparison with its numbers alone: it counts "a" as right."""

_ANSWER = re.compile(r"<answer>(.*?)</answer>")


def substring_rule(completion: str, gold: str) -> bool:
    """Right by the rule of Visual-RFT's classification script: after dropping blanks and
    underscores and lowering the case, either text holds the other. The first answer block counts,
    and only one without a line break.
    """
    found = _ANSWER.search(completion)
    if found is None:
        return False
    said, wanted = (text.replace(" ", "").replace("_", "").lower() for text in (found[1], gold))
    return wanted in said or said in wanted


def _classification(rows: list[Prediction], reasons: list[Reason], one: Array) -> dict[str, Ratio]:
    published = [float(substring_rule(row.completion, row.solution)) for row in rows]
    return {
        "accuracy": _mean([reason.score for reason in reasons], one),
        SUBSTRING: _mean(published, one),
    }


MOST_ERROR = 1e6
"""What a count of any number of digits is wrong by at most: a mean over it stays a number."""


def _counting(rows: list[Prediction], reasons: list[Reason], one: Array) -> dict[str, Ratio]:
    answers = [read(row.completion).number for row in rows]
    golds = [TASK_NAMES["counting"].read_gold(row.solution) for row in rows]
    stated = _array([float(answer is not None) for answer in answers]) * one
    error = [
        min(abs(answer - gold), MOST_ERROR) if answer is not None and gold is not None else 0.0
        for answer, gold in zip(answers, golds, strict=True)
    ]
    return {
        "accuracy": _mean([reason.score for reason in reasons], one),
        "mean_absolute_error": Ratio(_array(error) * stated, stated),
    }


def _grounding(rows: list[Prediction], reasons: list[Reason], one: Array) -> dict[str, Ratio]:
    single, shared, union = [], [], []
    for row in rows:
        gold = TASK_NAMES["grounding"].read_gold(row.solution)
        found = [] if gold is None else overlaps(read(row.completion), gold)
        single.append(found[0] if len(found) == 1 else 0.0)
        inside, whole = (0.0, 0.0) if gold is None else _areas(row, gold, found)
        shared.append(inside)
        union.append(whole)
    # The reward is (1 + GIoU) / 2, 0 for what cannot be read: back to [-1, 1].
    giou = REWARDS["vlrft_grounding_giou"](
        [row.completion for row in rows], [row.solution for row in rows]
    )
    return {
        "acc50": _mean(
            REWARDS["vlrft_grounding_acc50"](
                [row.completion for row in rows], [row.solution for row in rows]
            ),
            one,
        ),
        "acc75": _mean([float(overlap >= 0.75 - 1e-9) for overlap in single], one),
        "mean_iou": _mean([reason.score for reason in reasons], one),
        "mean_giou": _mean([2.0 * (value or 0.0) - 1.0 for value in giou], one),
        "cumulative_iou": Ratio(_array(shared) * one, _array(union) * one),
    }


def _areas(row: Prediction, gold: Box, found: list[float]) -> tuple[float, float]:
    """Shared and joined area of the gold box and all that was answered; pixels where the
    picture's size is known.
    """
    scale, whole = 1.0, float("inf")
    if row.whole is not None:
        whole = row.whole[0] * row.whole[1]
        scale = row.width * row.height / whole if row.width and row.height else 1.0
    wanted = (gold[2] - gold[0]) * (gold[3] - gold[1])
    given = [box for box in (read(row.completion).boxes or BoxList()).boxes if box is not None]
    # Boxes beyond the picture must not drown the other rows.
    total = min(sum((box[2] - box[0]) * (box[3] - box[1]) for box in given), max(whole, wanted))
    best = 0.0
    for box in given:
        width = min(box[2], gold[2]) - max(box[0], gold[0])
        height = min(box[3], gold[3]) - max(box[1], gold[1])
        if width > 0 and height > 0:
            best = max(best, width * height)
    return best * scale, (wanted + total - best) * scale


def _detection(rows: list[Prediction], reasons: list[Reason], one: Array) -> dict[str, Ratio]:
    return {}


_TASKS: dict[str, Callable[[list[Prediction], list[Reason], Array], dict[str, Ratio]]] = {
    "detection": _detection,
    "grounding": _grounding,
    "classification": _classification,
    "counting": _counting,
}
