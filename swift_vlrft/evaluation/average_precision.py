"""Compute COCO's average precision by faster-coco-eval, also over resampled images.

    gold        {"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "area": .., "iscrowd": 0}
    detections  {"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "score": 0.9}

    coco_scores(gold, detections, images=[9], categories=[18]).mean["AP50"]      1.0

Boxes are in pixels of the stored image, as are the areas of small, medium and large.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swift_vlrft.geometry.boxes import RECALLS

Array = NDArray[np.float64]
Entry = Mapping[str, Any]
Scores = dict[str, float | None]

THRESHOLDS = 10
"""IoU 0.5, 0.55, .. 0.95."""
MOST_DETECTIONS = 100
"""Detections per image and category, by score: COCO's limit."""


@dataclass(frozen=True)
class _Ranked:
    """The ranked detections of a category, and the number of gold boxes of each unit.

    ``hit`` and ``miss`` are (thresholds, detections); a detection on a crowd region is neither.
    """

    unit: NDArray[np.int64]
    hit: NDArray[np.bool_]
    miss: NDArray[np.bool_]
    gold: Array


@dataclass(frozen=True)
class CocoScores:
    """Holds the means over categories with gold boxes, and each category's; None: no gold box."""

    mean: Scores
    by_category: dict[Any, Scores]
    ranked: list[_Ranked]

    def resampled(self, weights: Array) -> dict[str, Array]:
        """Return AP, AP50, AP75 of every draw; ``weights``: how often each draw has each unit."""
        at_once = 64  # bounds the memory
        parts = [weights[n : n + at_once] for n in range(0, len(weights), at_once)]
        means = np.concatenate([self._means(part) for part in parts], axis=1)
        return {"AP": means.mean(axis=0), "AP50": means[0], "AP75": means[5]}

    def _means(self, weights: Array) -> Array:
        """Average precision (thresholds, draws), NaN for a draw without gold boxes."""
        total, present = np.zeros((THRESHOLDS, len(weights))), np.zeros(len(weights))
        for ranked in self.ranked:
            if ranked.gold.any():
                gold = weights[:, : len(ranked.gold)] @ ranked.gold  # images of no box come after
                total += np.where(gold > 0, _weighted_ap(ranked, weights, gold), 0.0)
                present += gold > 0
        return np.where(present > 0, total / np.maximum(present, 1), np.nan)


def coco_scores(
    gold: Sequence[Entry],
    detections: Sequence[Entry],
    images: Collection[Any],
    categories: Sequence[Any],
    units: Mapping[Any, int] | None = None,
) -> CocoScores:
    """Return AP, AP50, AP75 and AP of small, medium and large boxes.

    ``units`` gives each image its column of the weights, which several images may share; without it
    nothing can be resampled.
    """
    place = {image: n for n, image in enumerate(_ordered(images))}
    golds, predicted = _by_category(gold, place), _by_category(detections, place)
    tables: dict[Any, NDArray[Any]] = {}
    ranked: list[_Ranked] = []
    for category in categories:
        sides = golds.get(category, []), predicted.get(category, [])
        held = sorted({e["image_id"] for side in sides for e in side}, key=place.__getitem__)
        evaluator = _evaluated(*sides, held)
        tables[category] = np.asarray(evaluator.eval["precision"])[..., 0]
        if units is not None:
            n_units = max(units.values(), default=-1) + 1
            ranked.append(_ranked(evaluator, [units[image] for image in held], n_units))
    every = np.concatenate(list(tables.values()), axis=2) if tables else np.full((10, 1, 1, 4), -1)
    by_category = {category: _scores(tables[category]) for category in _ordered(categories)}
    return CocoScores(_scores(every), by_category, ranked)


def _ordered(ids: Collection[Any]) -> list[Any]:
    return sorted(ids, key=lambda value: (isinstance(value, str), value))


def _by_category(entries: Sequence[Entry], known: Mapping[Any, int]) -> dict[Any, list[Entry]]:
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        if entry["image_id"] in known:
            groups.setdefault(entry["category_id"], []).append(entry)
    return groups


def _evaluated(gold: list[Entry], detections: list[Entry], images: list[Any]) -> Any:
    """The evaluator, run on one category; its images are numbered from 1, in order."""
    from faster_coco_eval import COCO, COCOeval_faster

    numbers = {image: n for n, image in enumerate(images, start=1)}
    truth, results = (
        [
            {**entry, "id": n, "image_id": numbers[entry["image_id"]], "category_id": 1}
            for n, entry in enumerate(entries, start=1)
        ]
        for entries in (gold, detections)
    )
    known = [{"id": n} for n in numbers.values()] or [{"id": 1}]
    dataset = {"info": {}, "images": known, "categories": [{"id": 1}], "annotations": truth}
    quiet: dict[str, Any] = {"print_function": lambda *_: None}
    coco = COCO(dataset, **quiet)
    evaluator = COCOeval_faster(coco, coco.loadRes(results), "bbox", separate_eval=True, **quiet)
    evaluator.params.maxDets = [MOST_DETECTIONS]
    evaluator.evaluate()
    evaluator.accumulate()
    return evaluator


def _scores(table: NDArray[Any]) -> Scores:
    """From precisions (thresholds, recall levels, categories, sizes), -1 without gold boxes."""
    named = {"AP": table[..., 0], "AP50": table[:1, ..., 0], "AP75": table[5:6, ..., 0]}
    named |= {f"AP_{size}": table[..., n] for n, size in enumerate(("small", "medium", "large"), 1)}
    usable = {name: values[values > -1] for name, values in named.items()}
    return {name: float(values.mean()) if values.size else None for name, values in usable.items()}


# ---- resampled images ------------------------------------------------------------------------


def _ranked(evaluator: Any, units: list[int], n_units: int) -> _Ranked:
    """The evaluator's matches of boxes of all sizes.

    It keeps them by size and image, without a public field. What they would give to pickle is a
    tuple (nothing is pickled here): matches and ignored detections are (thresholds, detections).
    """
    gold = np.zeros(n_units)
    scores, of_unit = [np.zeros(0)], [np.zeros(0, np.int64)]
    matched, ignored = [np.zeros((THRESHOLDS, 0), bool)], [np.zeros((THRESHOLDS, 0), bool)]
    for unit, result in zip(units, evaluator._evalImgs_cpp, strict=False):  # then other sizes
        matches, _, of_image, gold_ignored, detection_ignored, *_ = result.__getstate__()
        gold[unit] += gold_ignored.count(False)
        scores.append(np.array(of_image, np.float64))
        of_unit.append(np.full(len(of_image), unit))
        matched.append(np.array(matches).reshape(THRESHOLDS, -1) > 0)
        ignored.append(np.array(detection_ignored, bool).reshape(THRESHOLDS, -1))
    order = np.argsort(-np.concatenate(scores), kind="stable")
    hit = np.concatenate(matched, axis=1)[:, order]
    counts = ~np.concatenate(ignored, axis=1)[:, order]
    return _Ranked(np.concatenate(of_unit)[order], hit & counts, ~hit & counts, gold)


def _weighted_ap(ranked: _Ranked, weights: Array, gold: Array) -> Array:
    """Average precision (thresholds, draws); ``gold``: how many boxes each draw has."""
    draws, n = len(weights), len(ranked.unit)
    drawn, most = weights[:, ranked.unit], np.maximum(gold, 1)[:, None]
    # Hits needed for each recall level: integers, so that nothing is rounded.
    levels = np.array(RECALLS)
    needed = np.ceil(levels * most)
    needed -= (needed - 1) / most >= levels
    needed += needed / most < levels
    rows = np.arange(draws)[:, None]
    shift = (most.max() + 2.0) * rows  # keeps the draws apart in one sorted list
    values = np.zeros((THRESHOLDS, draws))
    for t in range(THRESHOLDS if n else 0):
        hits = np.cumsum(drawn * ranked.hit[t], axis=1)  # at most `most` in all
        misses = np.cumsum(drawn * ranked.miss[t], axis=1)
        precision = hits / (hits + misses + np.spacing(1))
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        places = np.searchsorted((hits + shift).ravel(), (needed + shift).ravel())
        places = np.clip(places.reshape(draws, -1) - n * rows, 0, n)
        padded = np.concatenate([envelope, np.zeros((draws, 1))], axis=1)
        values[t] = np.take_along_axis(padded, places, axis=1).mean(axis=1)
    return values
