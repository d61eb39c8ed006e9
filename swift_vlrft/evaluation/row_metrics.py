"""Compute the metrics of an answer, each a value to average, or numerator and denominator.

    row_metrics("counting", row, reason, {})    {"accuracy": 0.0, "mean_absolute_error": (2, 1)}

A task's own metrics are a function in ``TASK_METRICS``, else its accuracy; those of all tasks are
in ``row_metrics``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swift_vlrft.diagnostics.reasons import Reason
from swift_vlrft.evaluation.predictions import Prediction
from swift_vlrft.geometry.boxes import EPSILON, giou
from swift_vlrft.parsing.answers import Answer, BoxList, read
from swift_vlrft.parsing.items import meant
from swift_vlrft.parsing.labels import is_empty_set
from swift_vlrft.rewards import TASK_NAMES
from swift_vlrft.rewards.grounding import Target, overlaps
from swift_vlrft.rewards.ocr import nearest, right_texts
from swift_vlrft.rewards.ordering import tau
from swift_vlrft.rewards.pointing import matched_points

Metrics = dict[str, float | tuple[float, float]]

SUBSTRING = "published_substring_rule"
"""Visual-RFT's scorer, only for comparison with its published numbers: it accepts "a"."""
NO_TARGET, TARGET = "n_acc", "t_acc"
"""gRefCOCO's N-acc and T-acc: of the rows without a target those that are answered so, of the
others those that are not. Source: GREC (arXiv 2308.16182) and its released evaluation.
"""
F1 = "f1"
"""Mean F1 at IoU 0.5, as GREC has it: without a target 1 for no box, else 0. GREC's headline, the
share of rows of F1 = 1, is ``acc50``.
"""

MOST_ERROR = 1e6
"""Largest error of a count, so that a mean stays finite."""
ANLS_THRESHOLD = 0.5
"""Biten et al. 2019: a text that is further away earns nothing. Of solution and aliases the nearest
counts, as in CER and WER.
"""


@dataclass(frozen=True)
class Scored:
    """Holds an answer with its row, its readable gold, and its scores by the names of rewards."""

    answer: Answer
    gold: Any
    row: Prediction
    score: float
    rewards: dict[str, float]


def row_metrics(task: str, row: Prediction, reason: Reason, rewards: dict[str, float]) -> Metrics:
    """Return every metric of an answer; ``reason`` is under its task's first reward."""
    answer, gold = read(row.completion), TASK_NAMES[task].read_gold(row.solution)
    own = TASK_METRICS.get(task, _accuracy)
    metrics = own(Scored(answer, gold, row, reason.score or 0.0, rewards))
    metrics |= {"parse_rate": reason.was_read, "mean_characters": len(row.completion)}
    if row.tokens is not None:
        metrics["mean_tokens"] = row.tokens
    if row.pass_rate is not None:
        metrics["pass_rate"] = row.pass_rate
    if row.finish is not None:
        metrics["truncated_rate"] = row.finish == "length"
    metrics.setdefault("empty_prediction_rate", is_empty_set(answer.short or ""))
    return metrics


def _accuracy(scored: Scored) -> Metrics:
    return {"accuracy": scored.score}


def _classification(scored: Scored) -> Metrics:
    rule = substring_rule(scored.row.completion, scored.row.solution)
    return {"accuracy": scored.score, SUBSTRING: rule}


def _counting(scored: Scored) -> Metrics:
    number, error = scored.answer.number, (0.0, 0.0)
    if number is not None:
        error = min(abs(number - scored.gold), MOST_ERROR), 1.0
    return {"accuracy": scored.score, "mean_absolute_error": error}


def _detection(scored: Scored) -> Metrics:
    metrics = _boxes(scored.answer)
    empty, nothing = float(metrics["empty_prediction_rate"] == 1.0), float(not scored.gold)
    return metrics | {
        "right_empty_prediction_rate": (empty * nothing, nothing),
        "false_empty_prediction_rate": (empty * (1 - nothing), 1 - nothing),
    }


def _grounding(scored: Scored) -> Metrics:
    mean_giou: float | tuple[float, float] = 0.0, 0.0
    acc75 = f1 = scored.score
    if not isinstance(scored.gold, BoxList):
        boxes = scored.answer.boxes.boxes if scored.answer.boxes is not None else []
        ious = overlaps(scored.answer, scored.gold)
        only = boxes[0] if len(boxes) == 1 else None
        mean_giou = giou(only, scored.gold) if only is not None else -1.0
        acc75 = len(ious) == 1 and ious[0] >= 0.75 - EPSILON
        f1 = 2.0 * (max(ious, default=0.0) >= 0.5 - EPSILON) / (len(ious) + 1)
    metrics: Metrics = {
        F1: f1,
        "acc50": scored.rewards["vlrft_grounding_acc50"],
        "acc75": acc75,
        "mean_iou": scored.score,
        "mean_giou": mean_giou,
        "cumulative_iou": _areas(scored.row, scored.gold, scored.answer),
    }
    return metrics | _target(scored, scored.answer.boxes) | _boxes(scored.answer)


def _pointing(scored: Scored) -> Metrics:
    points = scored.answer.points or []
    matched = matched_points(points, scored.gold)
    metrics: Metrics = {
        "point_accuracy": scored.score == 1.0,
        "points_in_boxes": (matched, len(points)),
        "boxes_pointed_at": (matched, len(scored.gold)),
        "invalid_point_rate": (points.count(None), len(points)),
        "points_per_answer": len(points),
        "empty_prediction_rate": scored.answer.points == [],
    }
    return metrics | _target(scored, scored.answer.points)


def _ocr(scored: Scored) -> Metrics:
    from rapidfuzz.distance import Levenshtein

    text, right = scored.answer.plain or "", right_texts(scored.gold, scored.row.aliases)
    gold = nearest(text, right)
    words, gold_words = text.split(), gold.split()
    far = min(Levenshtein.normalized_distance(text.lower(), name.lower()) for name in right)
    return {
        "cer": (Levenshtein.distance(text, gold), len(gold)),
        "wer": (Levenshtein.distance(words, gold_words), len(gold_words)),
        "exact_match": scored.rewards["vlrft_ocr_exact"],
        "anls": 1.0 - far if far < ANLS_THRESHOLD else 0.0,
    }


def _list(scored: Scored) -> Metrics:
    return {
        "f1": scored.score,
        "exact_match": scored.score == 1.0,
        "items_per_answer": len(meant(scored.answer.items or [], scored.gold)),
        "empty_prediction_rate": scored.answer.items == [],
    }


def _ordering(scored: Scored) -> Metrics:
    of_items = tau(scored.answer.order, scored.gold)
    return {
        "mean_tau": of_items or 0.0,
        "exact_match": scored.score == 1.0,
        "right_items_rate": of_items is not None,
    }


TASK_METRICS: dict[str, Callable[[Scored], Metrics]] = {
    "detection": _detection,
    "grounding": _grounding,
    "pointing": _pointing,
    "classification": _classification,
    "counting": _counting,
    "ocr": _ocr,
    "list": _list,
    "ordering": _ordering,
}


def _boxes(answer: Answer) -> Metrics:
    boxes = answer.boxes or BoxList()
    return {
        "empty_prediction_rate": float(answer.boxes is not None and not boxes.boxes),
        "invalid_box_rate": (boxes.boxes.count(None), len(boxes)),
        "boxes_per_answer": len(boxes),
    }


def _target(scored: Scored, items: BoxList | list[Any] | None) -> Metrics:
    """N-acc of a row without a target, T-acc of any other; ``items``: boxes or points."""
    if isinstance(scored.gold, BoxList) and not scored.gold:
        return {NO_TARGET: items is not None and not items}
    return {TARGET: bool(items)}


def substring_rule(completion: str, gold: str) -> bool:
    """Return whether one text contains the other, in lower case, without blanks and underscores.

    This is Visual-RFT's rule; the first answer block without a line break counts.
    """
    block = re.search(r"<answer>(.*?)</answer>", completion)
    if block is None:
        return False
    answer, gold = (text.replace(" ", "").replace("_", "").lower() for text in (block[1], gold))
    return gold in answer or answer in gold


def _areas(row: Prediction, gold: Target, answer: Answer) -> tuple[float, float]:
    """Intersection and union of gold and answered boxes, in pixels if the image's size is known."""
    image, scale = float("inf"), 1.0
    if row.box_range is not None:
        image = row.box_range[0] * row.box_range[1]
        scale = row.size[0] * row.size[1] / image if row.size is not None else 1.0

    def area(x1: float, y1: float, x2: float, y2: float) -> float:
        return max(x2 - x1, 0.0) * max(y2 - y1, 0.0)

    boxes = [box for box in (answer.boxes or BoxList()).boxes if box is not None]
    best, of_gold = 0.0, 0.0
    if not isinstance(gold, BoxList):
        shared = [
            area(*map(max, box[:2], gold[:2]), *map(min, box[2:], gold[2:]))  # type: ignore[call-arg]
            for box in boxes
        ]
        best, of_gold = max(shared, default=0.0), area(*gold)
    # Boxes beyond the image must not dominate the other rows.
    total = min(sum(area(*box) for box in boxes), max(image, of_gold))
    return best * scale, (of_gold + total - best) * scale
