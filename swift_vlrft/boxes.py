"""Geometry of boxes: overlap, one-to-one matching, average precision.

    iou((0, 0, 10, 10), (0, 0, 10, 5))    0.5

A box is xyxy: ``x1 < x2``, ``y1 < y2``, x right and y down, in any frame as long as both boxes are
in it; IoU does not change when both boxes are scaled per axis. Arrays are float64 of shape (N, 4).
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from heapq import nlargest
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

EPSILON = 1e-9
"""Slack on "IoU >= threshold", so that rounding after a scale does not decide a match."""

_MANY_PAIRS = 900
"""From here what numpy saves on every pair makes good what its calls cost, not its import."""


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


def overlapping_pairs(
    predicted: Sequence[Box | None], gold: BoxIndex, threshold: float
) -> list[Pair]:
    """Every pair with IoU >= ``threshold`` (> 0); an invalid box (None) is in none of them."""
    n_pairs = len(predicted) * gold.size
    if n_pairs >= _MANY_PAIRS and ("numpy" in sys.modules or n_pairs >= 100 * _MANY_PAIRS):
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
) -> list[Pair]:
    """The same in numpy, which first drops the pairs that lie too far apart along an axis."""
    import numpy as np

    rows: Sequence[int] = range(len(predicted))
    if None in predicted:
        rows = [i for i in rows if predicted[i] is not None]
    if not rows or not gold.by_left:
        return []
    # IoU >= t holds along each axis alone, which bounds where the other box may begin: for a box
    # from x1 to x2, of width w, between x2 - w / t and x2 - w * t.
    loose = threshold - 1e-6
    b = gold.columns
    step = 1 + 2_000_000 // b.shape[1]  # bounds the memory of the table
    pairs: list[Pair] = []
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        a = _columns([box for i in some if (box := predicted[i]) is not None])
        size = a[2:] - a[:2]
        low, high = (a[2:] - size / loose)[:, :, None], (a[2:] - size * loose)[:, :, None]
        near = (low[0] <= b[0]) & (b[0] <= high[0]) & (low[1] <= b[1]) & (b[1] <= high[1])
        row, column = np.divmod(np.flatnonzero(near), b.shape[1])
        overlaps = _iou_of_columns(a.take(row, axis=1), b.take(column, axis=1))
        hits = np.flatnonzero(overlaps >= threshold - EPSILON)
        for r, c, overlap in zip(
            row[hits].tolist(), column[hits].tolist(), overlaps[hits].tolist(), strict=True
        ):
            pairs.append((some[r], gold.by_left[c][1], overlap))
    return pairs


def _columns(boxes: Sequence[Box]) -> Array:
    import numpy as np

    numbers = np.fromiter(chain.from_iterable(boxes), np.float64, 4 * len(boxes))
    return np.ascontiguousarray(numbers.reshape(-1, 4).T)


def match(pairs: Sequence[Pair], against: Sequence[float | None] = ()) -> list[Pair]:
    """The one-to-one choice of ``pairs`` with the largest summed IoU.

    Equal sums are decided by ``against``, a number in [0, 1] per prediction (None counts as 0.5):
    the choice that matches less of it wins, so a repeated box cannot pick its better confidence.
    """
    if len(pairs) == len({i for i, _, _ in pairs}) == len({j for _, j, _ in pairs}):
        return list(pairs)
    best: dict[int, Pair] = {}
    tied = False
    for pair in pairs:
        other = best.get(pair[0])
        if other is None or pair[2] > other[2]:
            best[pair[0]] = pair
        elif pair[2] == other[2]:
            tied = True
    if not tied and len({j for _, j, _ in best.values()}) == len(best):
        return list(best.values())  # every prediction gets its best gold box: no sum is larger
    in_row = Counter(i for i, _, _ in pairs)
    in_column = Counter(j for _, j, _ in pairs)
    alone = [pair for pair in pairs if in_row[pair[0]] == in_column[pair[1]] == 1]
    rest = [pair for pair in pairs if in_row[pair[0]] > 1 or in_column[pair[1]] > 1]

    def weight(pair: Pair) -> float:
        stated = against[pair[0]] if against else 0.0
        return pair[2] - 1e-10 * (0.5 if stated is None else stated)

    # The order in the text must decide nothing: predictions are told apart by their overlaps only.
    overlaps: dict[int, dict[int, Pair]] = {}
    for pair in rest:
        overlaps.setdefault(pair[0], {})[pair[1]] = pair
    columns = sorted({pair[1] for pair in rest})
    rows = sorted(overlaps, key=lambda i: [(j, weight(p)) for j, p in sorted(overlaps[i].items())])
    if len(rows) > len(columns) ** 2:
        # Of n gold boxes each finds, among its n best predictions, one that no other one takes.
        kept: set[int] = set()
        for j in columns:
            near = [p for p in rest if p[1] == j]
            kept.update(p[0] for p in nlargest(len(columns), near, key=weight))
        rows = [i for i in rows if i in kept]
    solve = _solve_few if len(columns) <= _FEW_COLUMNS else _solve_many
    return [*alone, *solve([list(overlaps[i].values()) for i in rows], columns, weight)]


_FEW_COLUMNS = 6


def _solve_few(
    rows: list[list[Pair]], columns: list[int], weight: Callable[[Pair], float]
) -> list[Pair]:
    """The best choice for every set of gold boxes, one prediction after another.

    The common case of a few contested boxes; scipy alone takes longer to import than a reward may.
    """
    bits = {j: 1 << n for n, j in enumerate(columns)}
    best: dict[int, tuple[float, list[Pair]]] = {0: (0.0, [])}
    for row in rows:
        for taken, (total, chosen) in list(best.items()):
            for pair in row:
                bit = bits[pair[1]]
                more = total + weight(pair)
                if not taken & bit and more > best.get(taken | bit, (0.0,))[0]:
                    best[taken | bit] = (more, [*chosen, pair])
    return max(best.values(), key=lambda choice: choice[0])[1]


def _solve_many(
    rows: list[list[Pair]], columns: list[int], weight: Callable[[Pair], float]
) -> list[Pair]:
    import numpy as np
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    position = {j: c for c, j in enumerate(columns)}
    weights = np.zeros((len(rows), len(columns)))
    found = {}
    for r, row in enumerate(rows):
        for pair in row:
            weights[r, position[pair[1]]] = weight(pair)
            found[r, position[pair[1]]] = pair
    chosen = zip(*(indices.tolist() for indices in linear_sum_assignment(-weights)), strict=True)
    return [found[place] for place in chosen if place in found]


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
