"""COCO's average precision of detections, by faster-coco-eval, and of resampled images.

    gold        {"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "area": .., "iscrowd": 0}
    detections  {"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "score": 0.9}

    coco_scores(gold, detections, images=[9], categories=[18]).mean["AP50"]      1.0

Boxes are pixels of the stored picture: the sizes small, medium and large are of areas in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swift_vlrft.geometry.boxes import RECALLS

Array = NDArray[np.float64]
Entry = Mapping[str, Any]

THRESHOLDS = np.linspace(0.5, 0.95, 10)
MOST_DETECTIONS = 100
"""Of one image and category, by score: COCO's limit."""
SIZES = ("all", "small", "medium", "large")


@dataclass(frozen=True)
class CocoScores:
    """``mean`` over the categories that have gold boxes, ``by_category`` with every category;
    None: no gold box to find.
    """

    mean: dict[str, float | None]
    by_category: dict[Any, dict[str, float | None]]


def coco_scores(
    gold: Sequence[Entry],
    detections: Sequence[Entry],
    images: Sequence[Any],
    categories: Sequence[Any],
) -> CocoScores:
    """AP, AP50, AP75 and AP of small, medium and large boxes.

    What the evaluator takes time for is every pair of image and category, nearly all of them
    empty. Boxes are matched within a pair alone, so each category is handed over with only the
    images that hold something of it, numbered anew in their order.
    """
    place = {image: n for n, image in enumerate(_ordered(images))}
    golds, founds = _by_category(gold), _by_category(detections)
    slots: dict[Any, dict[Any, int]] = {}
    groups: dict[int, list[Any]] = {}
    for category in categories:
        own = {e["image_id"] for e in (*golds.get(category, ()), *founds.get(category, ()))}
        order = sorted(own & place.keys(), key=place.__getitem__)
        slots[category] = {image: n for n, image in enumerate(order, start=1)}
        groups.setdefault(len(order).bit_length(), []).append(category)
    tables: dict[Any, NDArray[Any]] = {}
    for group in groups.values():  # categories of about as many images each
        tables |= _precision(golds, founds, {category: slots[category] for category in group})
    whole = np.concatenate(list(tables.values()), axis=2) if tables else np.full((10, 1, 1, 4), -1)
    by_category = {category: _scores(tables[category]) for category in _ordered(categories)}
    return CocoScores(_scores(whole), by_category)


def _by_category(entries: Sequence[Entry]) -> dict[Any, list[Entry]]:
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry["category_id"], []).append(entry)
    return groups


def _precision(
    golds: Mapping[Any, list[Entry]],
    founds: Mapping[Any, list[Entry]],
    slots: Mapping[Any, Mapping[Any, int]],
) -> dict[Any, NDArray[Any]]:
    """The evaluator's precision of each category: (thresholds, recalls, 1, sizes)."""
    from faster_coco_eval import COCO, COCOeval_faster

    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for number, (category, images) in enumerate(slots.items(), start=1):
        for box in golds.get(category, ()):
            if box["image_id"] in images:
                _, _, width, height = box["bbox"]
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": images[box["image_id"]],
                        "category_id": number,
                        "bbox": list(box["bbox"]),
                        "area": box.get("area", width * height),
                        "iscrowd": int(bool(box.get("iscrowd"))),
                    }
                )
        results += [
            {
                "image_id": images[entry["image_id"]],
                "category_id": number,
                "bbox": list(entry["bbox"]),
                "score": float(entry["score"]),
            }
            for entry in founds.get(category, ())
            if entry["image_id"] in images
        ]
    most = max((len(images) for images in slots.values()), default=0)
    dataset = {
        "info": {},
        "images": [{"id": n} for n in range(1, max(most, 1) + 1)],
        "categories": [{"id": n, "name": str(n)} for n in range(1, len(slots) + 1)],
        "annotations": annotations,
    }
    evaluator = COCOeval_faster(
        COCO(dataset, print_function=_silent), None, iouType="bbox", print_function=_silent
    )
    evaluator.cocoDt = evaluator.cocoGt.loadRes(results)
    evaluator.params.imgIds = [image["id"] for image in dataset["images"]]  # type: ignore[index]
    evaluator.params.catIds = list(range(1, len(slots) + 1))
    evaluator.params.maxDets = [MOST_DETECTIONS]
    evaluator.evaluate()
    evaluator.accumulate()
    found = np.asarray(evaluator.eval["precision"])[:, :, :, :, 0]
    return {category: found[:, :, n : n + 1] for n, category in enumerate(slots)}


def _ordered(ids: Sequence[Any]) -> list[Any]:
    return sorted(ids, key=lambda value: (isinstance(value, str), value))


def _silent(*_: Any) -> None:
    """faster-coco-eval prints its progress; the commands here print their own."""


def _scores(table: NDArray[Any]) -> dict[str, float | None]:
    named = {"AP": table[:, :, :, 0], "AP50": table[:1, :, :, 0], "AP75": table[5:6, :, :, 0]}
    for n, size in enumerate(SIZES[1:], start=1):
        named[f"AP_{size}"] = table[:, :, :, n]
    return {name: _mean(values) for name, values in named.items()}


def _mean(values: NDArray[Any]) -> float | None:
    usable = values[values > -1]
    return float(usable.mean()) if usable.size else None


# ---- resampled images ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ranked:
    """One category: its detections best first, and how many gold boxes each image has.

    ``hit`` and ``miss`` are (thresholds, detections); a detection on a crowd region is neither.
    """

    image: NDArray[np.int64]
    hit: NDArray[np.bool_]
    miss: NDArray[np.bool_]
    gold: Array


class Matches:
    """Every detection matched once; average precision of any weighting of the images after it.

    An implementation of its own, since an evaluator that keeps no matches would have to be run
    again for every draw. Its numbers are those of faster-coco-eval where every weight is 1.
    """

    def __init__(
        self,
        gold: Sequence[Entry],
        detections: Sequence[Entry],
        images: Sequence[Any],
        categories: Sequence[Any],
        units: Mapping[Any, int] | None = None,
    ) -> None:
        """``units`` maps an image to what is drawn, several images may be one; default: itself."""
        order = _ordered(images)
        place = {image: n for n, image in enumerate(order)}
        self.unit = np.array(
            [units[image] if units is not None else place[image] for image in order], np.int64
        )
        self.n_units = int(self.unit.max(initial=-1)) + 1
        golds = _grouped(gold, place)
        found = _grouped(detections, place)
        self.ranked = {
            category: _rank(
                golds.get(category, {}), found.get(category, {}), self.unit, self.n_units
            )
            for category in _ordered(categories)
        }

    def average_precision(self, weights: Array) -> dict[str, Array]:
        """AP, AP50 and AP75 of every draw: ``weights`` is (draws, units)."""
        total = np.zeros((len(THRESHOLDS), len(weights)))
        present = np.zeros(len(weights))
        for ranked in self.ranked.values():
            if ranked.gold.any():
                values, has_gold = _weighted_ap(ranked, weights)
                total += np.where(has_gold, values, 0.0)
                present += has_gold
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.where(present > 0, total / np.maximum(present, 1), np.nan)
        return {"AP": means.mean(axis=0), "AP50": means[0], "AP75": means[5]}


def _grouped(
    entries: Sequence[Entry], place: Mapping[Any, int]
) -> dict[Any, dict[int, list[Entry]]]:
    groups: dict[Any, dict[int, list[Entry]]] = {}
    for entry in entries:
        if entry["image_id"] in place:
            image = place[entry["image_id"]]
            groups.setdefault(entry["category_id"], {}).setdefault(image, []).append(entry)
    return groups


def _rank(
    golds: Mapping[int, list[Entry]],
    found: Mapping[int, list[Entry]],
    unit: NDArray[np.int64],
    n_units: int,
) -> _Ranked:
    counts = np.zeros(n_units)
    for image, boxes in golds.items():
        counts[unit[image]] += sum(not box.get("iscrowd") for box in boxes)
    scores: list[float] = []
    where: list[int] = []
    hits: list[NDArray[np.int8]] = []
    for image in sorted(found):
        best = sorted(found[image], key=lambda entry: -entry["score"])[:MOST_DETECTIONS]
        hits.append(_match_image(best, golds.get(image, [])))
        scores += [entry["score"] for entry in best]
        where += [int(unit[image])] * len(best)
    order = np.argsort(-np.array(scores), kind="stable") if scores else np.zeros(0, np.int64)
    outcome = np.concatenate(hits, axis=1)[:, order] if hits else np.zeros((10, 0), np.int8)
    return _Ranked(np.array(where, np.int64)[order], outcome == 1, outcome == 0, counts)


def _match_image(found: Sequence[Entry], golds: Sequence[Entry]) -> NDArray[np.int8]:
    """1 hit, 0 miss, -1 on a crowd region: (thresholds, detections), greedy by score as COCO."""
    outcome = np.zeros((len(THRESHOLDS), len(found)), np.int8)
    if not golds:
        return outcome
    # Crowd regions last: a box that is one's own comes first.
    ranked = sorted(golds, key=lambda box: bool(box.get("iscrowd")))
    table = _overlaps(found, ranked)
    crowd = [bool(box.get("iscrowd")) for box in ranked]
    for t, threshold in enumerate(THRESHOLDS):
        taken = [False] * len(ranked)
        for d, overlaps in enumerate(table):
            best, chosen = min(float(threshold), 1 - 1e-10), -1
            for g, overlap in enumerate(overlaps):
                if taken[g] and not crowd[g]:
                    continue
                if chosen > -1 and not crowd[chosen] and crowd[g]:
                    break
                if overlap >= best:
                    best, chosen = overlap, g
            if chosen > -1:
                taken[chosen] = True
                outcome[t, d] = -1 if crowd[chosen] else 1
    return outcome


def _overlaps(found: Sequence[Entry], golds: Sequence[Entry]) -> list[list[float]]:
    """IoU of every detection with every gold box; with a crowd region, the share inside it."""
    a = np.array([entry["bbox"] for entry in found], np.float64)[:, None, :]
    b = np.array([entry["bbox"] for entry in golds], np.float64)[None, :, :]
    crowd = np.array([bool(entry.get("iscrowd")) for entry in golds])
    width = np.minimum(a[..., 0] + a[..., 2], b[..., 0] + b[..., 2]) - np.maximum(
        a[..., 0], b[..., 0]
    )
    height = np.minimum(a[..., 1] + a[..., 3], b[..., 1] + b[..., 3]) - np.maximum(
        a[..., 1], b[..., 1]
    )
    shared = np.maximum(width, 0) * np.maximum(height, 0)
    own, other = a[..., 2] * a[..., 3], b[..., 2] * b[..., 3]
    table: list[list[float]] = (shared / np.where(crowd, own, own + other - shared)).tolist()
    return table


_EPSILON = np.spacing(1)
_ROWS = 64
"""Draws worked on at once, which bounds the memory."""


def _weighted_ap(ranked: _Ranked, weights: Array) -> tuple[Array, NDArray[np.bool_]]:
    """(thresholds, draws) of average precision, and which draws hold a gold box."""
    gold = weights @ ranked.gold
    values = np.zeros((len(THRESHOLDS), len(weights)))
    levels = np.array(RECALLS)
    n = len(ranked.image)
    if n:
        for first in range(0, len(weights), _ROWS):
            drawn = weights[first : first + _ROWS][:, ranked.image]
            most = np.maximum(gold[first : first + _ROWS], 1)[:, None]
            rows = len(drawn)
            # The hits that each recall level takes: whole numbers, which no shift can round.
            needed = np.ceil(levels[None, :] * most)
            needed -= (needed - 1) / most >= levels
            needed += needed / most < levels
            shift = (most.max() + 2.0) * np.arange(rows)[:, None]  # rows stay apart
            for t in range(len(THRESHOLDS)):
                hits = np.cumsum(drawn * ranked.hit[t], axis=1)  # at most `most` in all
                misses = np.cumsum(drawn * ranked.miss[t], axis=1)
                precision = hits / (hits + misses + _EPSILON)
                envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
                places = (
                    np.searchsorted(
                        (hits + shift).ravel(), (needed + shift).ravel(), side="left"
                    ).reshape(rows, -1)
                    - n * np.arange(rows)[:, None]
                )
                padded = np.concatenate([envelope, np.zeros((rows, 1))], axis=1)
                reached = np.take_along_axis(padded, np.clip(places, 0, n), axis=1)
                values[t, first : first + rows] = reached.mean(axis=1)
    return values, gold > 0
