"""Compute the metrics of an answer, each a value to average, or numerator and denominator.

    row_metrics("counting", row, reason, {})    {"accuracy": 0.0, "mean_absolute_error": (2, 1)}

A task's own metrics are a function in ``TASK_METRICS``, else its accuracy; those of all tasks are
in ``row_metrics``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swift_vlrft.diagnostics.reasons import Reason
from swift_vlrft.evaluation.predictions import Prediction
from swift_vlrft.geometry.boxes import EPSILON
from swift_vlrft.parsing.answers import Answer, BoxList, read
from swift_vlrft.parsing.items import meant
from swift_vlrft.parsing.labels import is_empty_set
from swift_vlrft.rewards import TASK_NAMES
from swift_vlrft.rewards.grounding import overlaps
from swift_vlrft.rewards.listing import tau
from swift_vlrft.rewards.ocr import nearest, right_texts
from swift_vlrft.rewards.pointing import matched_points
from swift_vlrft.rewards.temporal import matched_iou

Metrics = dict[str, float | tuple[float, float]]

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
    if row.finish is not None:
        metrics["truncated_rate"] = row.finish == "length"
    metrics.setdefault("empty_prediction_rate", is_empty_set(answer.short or ""))
    return metrics


def _accuracy(scored: Scored) -> Metrics:
    return {"accuracy": scored.score}


def _temporal(scored: Scored) -> Metrics:
    """Of the first span that is given: its IoU with the gold span that it overlaps most."""
    first = (scored.answer.spans or [])[:1]
    iou = max(matched_iou(first, [gold]) for gold in scored.gold)
    return {"mean_iou": iou, **{f"r1_iou{n}": iou >= n / 100 - EPSILON for n in (30, 50, 70)}}


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
    acc75 = f1 = scored.score
    if not isinstance(scored.gold, BoxList):
        ious = overlaps(scored.answer.boxes or BoxList(), scored.gold)
        acc75 = len(ious) == 1 and ious[0] >= 0.75 - EPSILON
        f1 = 2.0 * (max(ious, default=0.0) >= 0.5 - EPSILON) / (len(ious) + 1)
    metrics: Metrics = {
        F1: f1,
        "acc50": scored.rewards["vlrft_grounding_acc50"],
        "acc75": acc75,
        "mean_iou": scored.score,
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
    far = min(Levenshtein.normalized_distance(text.lower(), name.lower()) for name in right)
    return {
        "cer": (Levenshtein.distance(text, gold), len(gold)),
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
    "counting": _counting,
    "ocr": _ocr,
    "list": _list,
    "ordering": _ordering,
    "temporal": _temporal,
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
