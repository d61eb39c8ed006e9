"""Compute the overlap of boxes, and average precision. Matching is in assignment.py.

    iou((0, 0, 10, 10), (0, 0, 10, 5))    0.5

A box is xyxy: ``x1 < x2``, ``y1 < y2``, x right and y down, in any box format, the same for both
boxes: IoU does not change when both are scaled per axis. Arrays are float64 of shape (4, N).
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from math import fsum, nan
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # importing the rewards does not wait for numpy, here and below
    import numpy as np
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.float64]"
Box = tuple[float, float, float, float]
Pair = tuple[int, int, float]
"""A prediction's index, a gold box's index, their IoU."""

EPSILON = 1e-9
"""Tolerance on "IoU >= threshold", so that rounding after scaling does not decide a match; as a
threshold, it is one that every overlap reaches.
"""

NOWHERE: Box = (nan, nan, nan, nan)
"""Stands for an invalid box: every comparison with it is false, so it overlaps nothing."""


def iou(a: Box, b: Box) -> float:
    """Return the intersection over union of two valid boxes, in [0, 1]."""
    shared = shared_area(a, b)
    return min(1.0, shared / (area(a) + area(b) - shared))


def giou(a: Box, b: Box) -> float:
    """Return the generalised IoU (Rezatofighi et al. 2019) of two valid boxes, in (-1, 1]."""
    shared = shared_area(a, b)
    union = area(a) + area(b) - shared
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return min(1.0, shared / union - max(0.0, hull - union) / hull)


def area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def shared_area(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0.0 < height else 0.0


def array_of(boxes: Sequence[Box | None]) -> Array:
    """Return x1, y1, x2, y2 of boxes as an array (4, N), NaN for an invalid box."""
    import numpy as np

    numbers = chain.from_iterable([box or NOWHERE for box in boxes])
    return np.ascontiguousarray(np.fromiter(numbers, np.float64, 4 * len(boxes)).reshape(-1, 4).T)


def overlap_table(a: Array, b: Array, threshold: float) -> Array:
    """Return the IoU of each box of ``a`` with each of ``b``: (N, M), 0 where it is under
    ``threshold`` (> 0).
    """
    import numpy as np

    ax1, ay1, ax2, ay2 = a[:, :, None]
    bx1, by1, bx2, by2 = b
    shared = np.maximum(np.minimum(ax2, bx2) - np.maximum(ax1, bx1), 0.0)
    shared *= np.maximum(np.minimum(ay2, by2) - np.maximum(ay1, by1), 0.0)
    overlaps = shared / ((ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared)
    return np.where(overlaps >= threshold - EPSILON, np.minimum(overlaps, 1.0), 0.0)


RECALLS = [0.01 * n for n in range(100)] + [1.0]
"""COCO's recall levels, the same floats, so that each rank falls on the same side of every
level.
"""


def average_precision(hits: Sequence[bool], n_gold: int) -> float:
    """Return COCO's average precision (101 recall levels) in [0, 1].

    ``hits`` holds for each prediction, best first, whether it is matched with a gold box;
    ``n_gold`` > 0.
    """
    matched = levels = 0  # recall levels that are reached
    curve: list[tuple[float, int]] = []  # precision and further levels at every hit
    for rank, hit in enumerate(hits, start=1):
        if hit:
            matched, before = matched + 1, levels
            levels = bisect_right(RECALLS, matched / n_gold)
            curve.append((matched / rank, levels - before))
    best, areas = 0.0, []
    for precision, further in reversed(curve):
        best = max(best, precision)
        areas.append(best * further)
    return fsum(areas) / len(RECALLS)
