"""Compute COCO's average precision by faster-coco-eval, also over resampled images.

    gold        {"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "area": .., "iscrowd": 0}
    detections  {"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "score": 0.9}

    coco_scores(gold, detections, images=[9], categories=[18]).mean["AP50"]      1.0

Boxes are in pixels of the stored image, as are the areas of small, medium and large. The numbers
are pycocotools' where scores differ. Detections of equal score it ranks as they happen to come;
here wrong ones come first, so that no order of images or boxes makes a model better. ``f1_50``
needs no ranking: 2 hits / (detections + gold boxes), of all categories at IoU 0.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swift_vlrft.geometry.boxes import RECALLS

Array = NDArray[np.float64]
Entry = Mapping[str, Any]
Scores = dict[str, float | None]

THRESHOLDS = 10
"""IoU 0.5, 0.55, .. 0.95."""
SIZES = ("all", "small", "medium", "large")
COUNTED = ("precision_50", "recall_50", "f1_50")
MOST_DETECTIONS = 100
"""Detections per image and category, by score: COCO's limit."""


@dataclass(frozen=True)
class _Ranked:
    """The ranked detections of a category, and the number of gold boxes of each unit.

    All but ``gold`` are (thresholds, detections); a detection on a crowd region is neither hit nor
    miss.
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
    notes: list[str] = field(default_factory=list)

    def resampled(self, weights: Array) -> dict[str, Array]:
        """Return AP, AP50, AP75, f1_50 of every draw; ``weights``: how often it has each unit."""
        at_once = 64  # bounds the memory
        parts = [weights[n : n + at_once] for n in range(0, len(weights), at_once)]
        means = np.concatenate([self._means(part) for part in parts], axis=1)
        _, _, f1 = _precision_recall_f1(self.ranked, weights)
        return {"AP": means.mean(axis=0), "AP50": means[0], "AP75": means[5], "f1_50": f1}

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
    """Return AP, AP50, AP75, AP of small, medium and large boxes; precision, recall and F1.

    ``units`` gives each image its column of the weights, which several images may share; without it
    each has its own.
    """
    place = {image: n for n, image in enumerate(_ordered(images))}
    units = place if units is None else units
    n_units = max(units.values(), default=-1) + 1
    golds, predicted = _by_category(gold, place), _by_category(detections, place)
    tables: dict[Any, Array] = {}
    ranked: list[_Ranked] = []
    for category in categories:
        found = sorted(predicted.get(category, []), key=lambda entry: list(entry["bbox"]))
        sides = golds.get(category, []), found
        held = sorted({e["image_id"] for side in sides for e in side}, key=place.__getitem__)
        evaluator = _evaluated(*sides, held)
        of_sizes = [
            _ranked(evaluator, [units[image] for image in held], n_units, size)
            for size in range(len(SIZES))
        ]
        ranked.append(of_sizes[0])
        tables[category] = np.stack([_average(one) for one in of_sizes], axis=-1)
    every = np.stack([*tables.values()]) if tables else np.full((1, THRESHOLDS, len(SIZES)), np.nan)
    means, once = _scores(every), np.ones((1, n_units))
    counted = zip(COUNTED, _precision_recall_f1(ranked, once), strict=True)
    beside = {name: float(v[0]) if np.isfinite(v[0]) else None for name, v in counted}
    by_category = {category: _scores(tables[category]) for category in _ordered(categories)}
    named = {"AP": means["AP"], **beside, **means}
    return CocoScores(named, by_category, ranked, _ties(detections))


def _ties(detections: Sequence[Entry]) -> list[str]:
    """Say that detections of a category have equal scores: AP is then a lower bound."""
    counts = Counter((entry["category_id"], entry["score"]) for entry in detections)
    tied = sum(count for count in counts.values() if count > 1)
    text = f"{tied} of {len(detections)} confidences are missing or shared by others: among equals "
    text += "AP ranks what is wrong first (COCO's tool: as it comes); f1_50 needs no ranking"
    return [text] if tied else []


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
    return evaluator


def _scores(table: Array) -> Scores:
    """From average precision (.., thresholds, sizes), NaN without gold boxes."""
    named = {"AP": table[..., 0], "AP50": table[..., :1, 0], "AP75": table[..., 5:6, 0]}
    named |= {f"AP_{size}": table[..., n] for n, size in enumerate(SIZES) if n}
    usable = {name: values[np.isfinite(values)] for name, values in named.items()}
    return {name: float(values.mean()) if values.size else None for name, values in usable.items()}


def _average(ranked: _Ranked) -> Array:
    """Average precision at each threshold, NaN without gold boxes."""
    weights = np.ones((1, len(ranked.gold)))
    gold = weights @ ranked.gold
    return _weighted_ap(ranked, weights, gold)[:, 0] if gold[0] else np.full(THRESHOLDS, np.nan)


def _precision_recall_f1(ranked: Sequence[_Ranked], weights: Array) -> tuple[Array, Array, Array]:
    """At IoU 0.5, of all categories together: of every draw, NaN where nothing is counted."""
    hits, misses, golds = np.zeros((3, len(weights)))
    for one in ranked:
        drawn = weights[:, one.unit[0]]
        hits += drawn @ one.hit[0]
        misses += drawn @ one.miss[0]
        golds += weights[:, : len(one.gold)] @ one.gold
    found = hits + misses
    with np.errstate(invalid="ignore"):
        return hits / found, hits / golds, 2 * hits / (found + golds)


# ---- resampled images ------------------------------------------------------------------------


def _ranked(evaluator: Any, units: list[int], n_units: int, size: int) -> _Ranked:
    """The evaluator's matches of boxes of one of ``SIZES``; of equal scores, misses come first.

    It keeps them by size and image, without a public field. What they would give to pickle is a
    tuple (nothing is pickled here): matches and ignored detections are (thresholds, detections).
    """
    gold = np.zeros(n_units)
    scores, of_unit = [np.zeros(0)], [np.zeros(0, np.int64)]
    matched, ignored = [np.zeros((THRESHOLDS, 0), bool)], [np.zeros((THRESHOLDS, 0), bool)]
    results = evaluator._evalImgs_cpp[size * max(len(units), 1) :]
    for unit, result in zip(units, results, strict=False):  # then larger sizes
        matches, _, of_image, gold_ignored, detection_ignored, *_ = result.__getstate__()
        gold[unit] += gold_ignored.count(False)
        scores.append(np.array(of_image, np.float64))
        of_unit.append(np.full(len(of_image), unit))
        matched.append(np.array(matches).reshape(THRESHOLDS, -1) > 0)
        ignored.append(np.array(detection_ignored, bool).reshape(THRESHOLDS, -1))
    hit = np.concatenate(matched, axis=1)
    falling = np.broadcast_to(-np.concatenate(scores), hit.shape)
    order = np.lexsort((hit, falling), axis=-1)
    hit = np.take_along_axis(hit, order, axis=1)
    counts = ~np.take_along_axis(np.concatenate(ignored, axis=1), order, axis=1)
    return _Ranked(np.concatenate(of_unit)[order], hit & counts, ~hit & counts, gold)


def _weighted_ap(ranked: _Ranked, weights: Array, gold: Array) -> Array:
    """Average precision (thresholds, draws); ``gold``: how many boxes each draw has."""
    draws, n = len(weights), ranked.unit.shape[1]
    most = np.maximum(gold, 1)[:, None]
    # Hits needed for each recall level: integers, so that nothing is rounded.
    levels = np.array(RECALLS)
    needed = np.ceil(levels * most)
    needed -= (needed - 1) / most >= levels
    needed += needed / most < levels
    rows = np.arange(draws)[:, None]
    shift = (most.max() + 2.0) * rows  # keeps the draws apart in one sorted list
    values = np.zeros((THRESHOLDS, draws))
    for t in range(THRESHOLDS if n else 0):
        drawn = weights[:, ranked.unit[t]]
        hits = np.cumsum(drawn * ranked.hit[t], axis=1)  # at most `most` in all
        misses = np.cumsum(drawn * ranked.miss[t], axis=1)
        precision = hits / np.maximum(hits + misses, 1)
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        places = np.searchsorted((hits + shift).ravel(), (needed + shift).ravel())
        places = np.clip(places.reshape(draws, -1) - n * rows, 0, n)
        padded = np.concatenate([envelope, np.zeros((draws, 1))], axis=1)
        values[t] = np.take_along_axis(padded, places, axis=1).mean(axis=1)
    return values
