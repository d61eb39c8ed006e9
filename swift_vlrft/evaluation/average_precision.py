"""COCO's average precision by faster-coco-eval, also over resampled images.

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
SIZES = ("all", "small", "medium", "large")


@dataclass(frozen=True)
class _Ranked:
    """One category: its detections best first, and how many gold boxes each image has.

    ``hit`` and ``miss`` are (thresholds, detections); a detection on a crowd region is neither.
    """

    image: NDArray[np.int64]
    hit: NDArray[np.bool_]
    miss: NDArray[np.bool_]
    gold: Array


@dataclass(frozen=True)
class CocoScores:
    """``mean`` over the categories that have gold boxes, ``by_category`` with every category;
    None: no gold box.
    """

    mean: Scores
    by_category: dict[Any, Scores]
    ranked: list[_Ranked]

    def resampled(self, weights: Array) -> dict[str, Array]:
        """AP, AP50 and AP75 of every draw: ``weights`` is (draws, images), how often each image
        was drawn.
        """
        total = np.zeros((THRESHOLDS, len(weights)))
        present = np.zeros(len(weights))
        for ranked in self.ranked:
            if ranked.gold.any():
                values, has_gold = _weighted_ap(ranked, weights)
                total += np.where(has_gold, values, 0.0)
                present += has_gold
        means = np.where(present > 0, total / np.maximum(present, 1), np.nan)
        return {"AP": means.mean(axis=0), "AP50": means[0], "AP75": means[5]}


def coco_scores(
    gold: Sequence[Entry],
    detections: Sequence[Entry],
    images: Collection[Any],
    categories: Sequence[Any],
    units: Mapping[Any, int] | None = None,
) -> CocoScores:
    """AP, AP50, AP75 and AP of small, medium and large boxes. ``units``: the column of the weights
    for each image, which several images may share; without it nothing can be resampled.

    The evaluator's time goes into pairs of image and category, nearly all of them empty. Boxes are
    matched only within a pair, so each category is evaluated with only the images that have boxes
    of it, renumbered in order.
    """
    place = {image: n for n, image in enumerate(_ordered(images))}
    golds, predicted = _by_category(gold, place), _by_category(detections, place)
    groups: dict[int, dict[Any, list[Any]]] = {}
    for category in categories:
        held = {
            entry["image_id"] for entry in golds.get(category, []) + predicted.get(category, [])
        }
        order = sorted(held, key=place.__getitem__)
        groups.setdefault(len(order).bit_length(), {})[category] = order
    tables: dict[Any, NDArray[Any]] = {}
    ranked: list[_Ranked] = []
    for group in groups.values():  # categories of about as many images each
        evaluator = _evaluated(golds, predicted, group)
        precision = np.asarray(evaluator.eval["precision"])[:, :, :, :, 0]
        tables |= {category: precision[:, :, n : n + 1] for n, category in enumerate(group)}
        if units is not None:
            ranked += _ranked(evaluator, list(group.values()), units)
    joined = np.concatenate(list(tables.values()), axis=2) if tables else np.full((10, 1, 1, 4), -1)
    by_category = {category: _scores(tables[category]) for category in _ordered(categories)}
    return CocoScores(_scores(joined), by_category, ranked)


def _by_category(entries: Sequence[Entry], known: Mapping[Any, int]) -> dict[Any, list[Entry]]:
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        if entry["image_id"] in known:
            groups.setdefault(entry["category_id"], []).append(entry)
    return groups


def _evaluated(
    golds: Mapping[Any, list[Entry]],
    detections: Mapping[Any, list[Entry]],
    group: Mapping[Any, list[Any]],
) -> Any:
    """The evaluator, run on some categories, each with the images that have boxes of it."""
    from faster_coco_eval import COCO, COCOeval_faster

    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for number, (category, images) in enumerate(group.items(), start=1):
        slots = {image: n for n, image in enumerate(images, start=1)}
        for entries, target in ((golds, annotations), (detections, results)):
            target += [
                {**entry, "image_id": slots[entry["image_id"]], "category_id": number}
                for entry in entries.get(category, ())
            ]
    for n, box in enumerate(annotations, start=1):
        box["id"] = n
    images = list(range(1, max(max(map(len, group.values())), 1) + 1))
    categories = list(range(1, len(group) + 1))
    dataset = {
        "info": {},
        "images": [{"id": n} for n in images],
        "categories": [{"id": n, "name": str(n)} for n in categories],
        "annotations": annotations,
    }

    def silent(*_: Any) -> None:
        """The evaluator prints its progress; the commands here print theirs."""

    truth = COCO(dataset, print_function=silent)
    evaluator = COCOeval_faster(
        truth, None, iouType="bbox", print_function=silent, separate_eval=True
    )
    evaluator.cocoDt = truth.loadRes(results)
    evaluator.params.imgIds, evaluator.params.catIds = images, categories
    evaluator.params.maxDets = [MOST_DETECTIONS]
    evaluator.evaluate()
    evaluator.accumulate()
    return evaluator


def _ordered(ids: Collection[Any]) -> list[Any]:
    return sorted(ids, key=lambda value: (isinstance(value, str), value))


def _scores(table: NDArray[Any]) -> Scores:
    named = {"AP": table[:, :, :, 0], "AP50": table[:1, :, :, 0], "AP75": table[5:6, :, :, 0]}
    for n, size in enumerate(SIZES[1:], start=1):
        named[f"AP_{size}"] = table[:, :, :, n]
    usable = {name: values[values > -1] for name, values in named.items()}
    return {name: float(values.mean()) if values.size else None for name, values in usable.items()}


# ---- resampled images ------------------------------------------------------------------------


def _ranked(evaluator: Any, group: list[list[Any]], units: Mapping[Any, int]) -> list[_Ranked]:
    """The evaluator's matches of boxes of all sizes, by category.

    It keeps them by category, size and image, in objects without a public field. What they would
    give to pickle is a tuple (nothing is pickled here): matches and ignored detections are
    (thresholds, detections), detections by falling score.
    """
    n_units = max(units.values(), default=-1) + 1
    n_images = len(evaluator.params.imgIds)
    categories = []
    for k, images in enumerate(group):
        start = k * len(SIZES) * n_images
        gold = np.zeros(n_units)
        scores, unit_of = [np.zeros(0)], [np.zeros(0, np.int64)]
        matched = [np.zeros((THRESHOLDS, 0), bool)]
        ignored = [np.zeros((THRESHOLDS, 0), bool)]
        for n, image in enumerate(images):
            state = evaluator._evalImgs_cpp[start + n].__getstate__()
            matches, _, image_scores, gold_ignored, detection_ignored, *_ = state
            gold[units[image]] += gold_ignored.count(False)
            scores.append(np.array(image_scores, np.float64))
            unit_of.append(np.full(len(image_scores), units[image], np.int64))
            matched.append(np.array(matches).reshape(THRESHOLDS, -1) > 0)
            ignored.append(np.array(detection_ignored, bool).reshape(THRESHOLDS, -1))
        order = np.argsort(-np.concatenate(scores), kind="stable")
        hit = np.concatenate(matched, axis=1)[:, order]
        counts = ~np.concatenate(ignored, axis=1)[:, order]
        categories.append(
            _Ranked(np.concatenate(unit_of)[order], hit & counts, ~hit & counts, gold)
        )
    return categories


_EPSILON = np.spacing(1)
_ROWS = 64
"""Draws computed at once, which bounds the memory."""


def _weighted_ap(ranked: _Ranked, weights: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Average precision (thresholds, draws), and which draws have a gold box."""
    gold = weights[:, : len(ranked.gold)] @ ranked.gold  # the images of no box come after
    values = np.zeros((THRESHOLDS, len(weights)))
    levels = np.array(RECALLS)
    n = len(ranked.image)
    for first in range(0, len(weights) if n else 0, _ROWS):
        drawn = weights[first : first + _ROWS][:, ranked.image]
        most = np.maximum(gold[first : first + _ROWS], 1)[:, None]
        rows = len(drawn)
        # Hits needed for each recall level: integers, so that nothing is rounded.
        needed = np.ceil(levels[None, :] * most)
        needed -= (needed - 1) / most >= levels
        needed += needed / most < levels
        shift = (most.max() + 2.0) * np.arange(rows)[:, None]  # rows stay apart
        for t in range(THRESHOLDS):
            hits = np.cumsum(drawn * ranked.hit[t], axis=1)  # at most `most` in all
            misses = np.cumsum(drawn * ranked.miss[t], axis=1)
            precision = hits / (hits + misses + _EPSILON)
            envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
            flat = np.searchsorted((hits + shift).ravel(), (needed + shift).ravel(), side="left")
            places = flat.reshape(rows, -1) - n * np.arange(rows)[:, None]
            padded = np.concatenate([envelope, np.zeros((rows, 1))], axis=1)
            reached = np.take_along_axis(padded, np.clip(places, 0, n), axis=1)
            values[t, first : first + rows] = reached.mean(axis=1)
    return values, gold > 0
