"""Geometry of boxes: overlap and average precision; who is matched with whom is in assignment.py.

    iou((0, 0, 10, 10), (0, 0, 10, 5))    0.5

A box is xyxy: ``x1 < x2``, ``y1 < y2``, x right and y down, in any frame as long as both boxes are
in it; IoU does not change when both boxes are scaled per axis. Arrays are float64 of shape (N, 4).
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import fsum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Box = tuple[float, float, float, float]
Pair = tuple[int, int, float]
"""A prediction's index, a gold box's index, their IoU."""


@dataclass(frozen=True)
class PairArrays:
    """Many pairs: the same three as columns, which stay arrays as far as they go."""

    i: NDArray[np.intp]
    j: NDArray[np.intp]
    iou: Array

    def __len__(self) -> int:
        return len(self.i)

    def __iter__(self) -> Iterator[Pair]:
        return zip(self.i.tolist(), self.j.tolist(), self.iou.tolist(), strict=True)

    def where(self, keep: NDArray[np.bool_]) -> PairArrays:
        return PairArrays(self.i[keep], self.j[keep], self.iou[keep])

    def listed_if_few(self) -> Pairs:
        return self if len(self) > MANY_PAIRS else list(self)


Pairs = list[Pair] | PairArrays

EPSILON = 1e-9
"""Slack on "IoU >= threshold", so that rounding after a scale does not decide a match."""

_MANY_COMPARED = 900
"""From here what numpy saves on every pair makes good what its calls cost, not its import."""

MANY_PAIRS = 2000
"""Overlapping pairs, from which arrays are faster than Python's own objects."""


def iou(a: Box, b: Box) -> float:
    """Intersection over union of two valid boxes, in [0, 1]."""
    ax1, ay1, ax2, ay2 = a
    bx1, by1, bx2, by2 = b
    # Comparisons rather than min and max: this is the inner loop of every reward.
    width = (ax2 if ax2 < bx2 else bx2) - (ax1 if ax1 > bx1 else bx1)
    height = (ay2 if ay2 < by2 else by2) - (ay1 if ay1 > by1 else by1)
    if width <= 0.0 or height <= 0.0:
        return 0.0
    shared = width * height
    overlap = shared / ((ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared)
    return overlap if overlap < 1.0 else 1.0


def giou(a: Box, b: Box) -> float:
    """Generalised IoU (Rezatofighi et al. 2019) of two valid boxes, in (-1, 1]."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0.0, width) * max(0.0, height)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return min(1.0, shared / union - max(0.0, hull - union) / hull)


def pairwise_iou(a: Array, b: Array) -> Array:
    """IoU of every box of ``a`` (N, 4) with every box of ``b`` (M, 4): (N, M)."""
    return _iou_of_columns(a.T[:, :, None], b.T[:, None, :])


def pairwise_giou(a: Array, b: Array) -> Array:
    """GIoU of every box of ``a`` (N, 4) with every box of ``b`` (M, 4): (N, M)."""
    import numpy as np  # here and below, so that importing the rewards does not wait for it

    a, b = a.T[:, :, None], b.T[:, None, :]
    shared, union = _shared_and_union(a, b)
    width = np.maximum(a[2], b[2]) - np.minimum(a[0], b[0])
    hull = width * (np.maximum(a[3], b[3]) - np.minimum(a[1], b[1]))
    overlaps: Array = np.minimum(shared / union - np.maximum(hull - union, 0.0) / hull, 1.0)
    return overlaps


def _iou_of_columns(a: Array, b: Array) -> Array:
    """IoU where x1, y1, x2, y2 are the first axis of ``a`` and ``b`` and the rest broadcasts."""
    import numpy as np

    shared, union = _shared_and_union(a, b)
    overlaps: Array = np.minimum(shared / union, 1.0)
    return overlaps


def _shared_and_union(a: Array, b: Array) -> tuple[Array, Array]:
    import numpy as np

    width = np.minimum(a[2], b[2]) - np.maximum(a[0], b[0])
    height = np.minimum(a[3], b[3]) - np.maximum(a[1], b[1])
    shared = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    return shared, (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared


class BoxIndex:
    """Boxes prepared for the search of overlaps: one gold list is compared with many
    completions.
    """

    def __init__(self, boxes: Sequence[Box | None]) -> None:
        self.size = len(boxes)
        self.by_left = sorted(
            (box[0], j, *box[1:], (box[2] - box[0]) * (box[3] - box[1]))
            for j, box in enumerate(boxes)
            if box is not None
        )
        """x1, index, y1, x2, y2 and area of each valid box."""
        self.lefts = [box[0] for box in self.by_left]

    @cached_property
    def columns(self) -> Array:
        """x1, y1, x2, y2 of the valid boxes in the order of ``by_left``: (4, M)."""
        return _columns([(x1, y1, x2, y2) for x1, _, y1, x2, y2, _ in self.by_left])

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The index of each column of ``columns``: (M,)."""
        import numpy as np

        return np.array([box[1] for box in self.by_left], dtype=np.intp)


def overlapping_pairs(predicted: Sequence[Box | None], gold: BoxIndex, threshold: float) -> Pairs:
    """Every pair with IoU >= ``threshold`` (> 0); an invalid box (None) is in none of them."""
    n_pairs = len(predicted) * gold.size
    if n_pairs >= _MANY_COMPARED and ("numpy" in sys.modules or n_pairs >= 100 * _MANY_COMPARED):
        return _overlapping_pairs_of_many(predicted, gold, threshold)
    least = threshold - EPSILON
    pairs = []
    by_left, lefts = gold.by_left, gold.lefts
    for i, box in enumerate(predicted):
        if box is None:
            continue
        ax1, ay1, ax2, ay2 = box
        area = (ax2 - ax1) * (ay2 - ay1)
        for bx1, j, by1, bx2, by2, gold_area in by_left[: bisect_left(lefts, ax2)]:
            if ax1 < bx2 and by1 < ay2 and ay1 < by2:
                # ``iou``, written out: this is the inner loop of every reward.
                shared = (ax2 if ax2 < bx2 else bx2) - (ax1 if ax1 > bx1 else bx1)
                shared *= (ay2 if ay2 < by2 else by2) - (ay1 if ay1 > by1 else by1)
                overlap = shared / (area + gold_area - shared)
                if overlap >= least:
                    pairs.append((i, j, overlap if overlap < 1.0 else 1.0))
    return pairs


def _overlapping_pairs_of_many(
    predicted: Sequence[Box | None], gold: BoxIndex, threshold: float
) -> Pairs:
    """The same in numpy, which first drops the pairs that lie too far apart along an axis."""
    import numpy as np

    boxes = [box for box in predicted if box is not None]
    if not boxes:
        return []
    order = np.arange(len(predicted))
    if len(boxes) < len(predicted):
        order = np.array([i for i in order.tolist() if predicted[i] is not None])
    # IoU >= t holds along each axis alone, which bounds where the other box may begin: for a box
    # from x1 to x2, of width w, between x2 - w / t and x2 - w * t.
    loose = threshold - 1e-6
    b = gold.columns
    step = 1 + 2_000_000 // max(1, gold.size)  # bounds the memory of what is compared at once
    found = []
    for first in range(0, len(boxes), step):
        a = _columns(boxes[first : first + step])
        width = a[2] - a[0]
        begin = b[0].searchsorted(a[2] - width / loose)
        count = b[0].searchsorted(a[2] - width * loose, side="right") - begin
        row = np.arange(len(width)).repeat(count)
        # Of every row the gold boxes begin, begin + 1, ..., begin + count - 1.
        column = np.arange(len(row)) + (begin - count.cumsum() + count).repeat(count)
        height, y1 = a[3] - a[1], b[1].take(column)
        near = (a[3] - height / loose).take(row) <= y1
        near &= y1 <= (a[3] - height * loose).take(row)
        near = near.nonzero()[0]
        row, column = row.take(near), column.take(near)
        overlaps = _iou_of_columns(a.take(row, axis=1), b.take(column, axis=1))
        hits = (overlaps >= threshold - EPSILON).nonzero()[0]
        i = order.take(first + row.take(hits))
        found.append((i, gold.order.take(column.take(hits)), overlaps.take(hits)))
    if len(found) == 1:
        return PairArrays(*found[0]).listed_if_few()
    return PairArrays(*map(np.concatenate, zip(*found, strict=True))).listed_if_few()


def _columns(boxes: Sequence[Box]) -> Array:
    import numpy as np

    numbers = np.fromiter(chain.from_iterable(boxes), np.float64, 4 * len(boxes))
    return np.ascontiguousarray(numbers.reshape(-1, 4).T)


RECALLS = [0.01 * n for n in range(100)] + [1.0]
"""COCO's recall levels, the same floats, so that each rank falls on the same side of every
level.
"""


def average_precision(hits: Sequence[bool], n_gold: int) -> float:
    """COCO's average precision (101 recall levels) in [0, 1].

    ``hits`` says for each prediction, best first, whether it found a gold box of its own;
    ``n_gold`` > 0.
    """
    found = 0
    curve: list[tuple[int, float]] = []  # (recall levels reached, precision) at every hit
    for rank, hit in enumerate(hits, start=1):
        if hit:
            found += 1
            curve.append((bisect_right(RECALLS, found / n_gold), found / rank))
    best = 0.0
    areas = []
    for n in range(len(curve) - 1, -1, -1):
        levels, precision = curve[n]
        best = max(best, precision)
        areas.append(best * (levels - (curve[n - 1][0] if n else 0)))
    return fsum(areas) / len(RECALLS)
