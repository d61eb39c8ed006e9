"""Read boxes that miss in other ways: is it the box format that is wrong?

    gold [250, 302, 750, 802], predictions [160, 145, 480, 385], ...
    "46 of 48 misplaced boxes match (mean IoU 0.91) if read as pixels of 640 x 480: use SET:pixels"

Tried are the box formats, y first, and x, y, width, height; where no size of an image is known, a
scale for each axis is fitted. What fits the golds of other rows as well is no cause but chance, or
one answer for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from swift_vlrft.datasets.box_format import written_boxes
from swift_vlrft.datasets.image import size_of_row
from swift_vlrft.families import sizes_in_pixels
from swift_vlrft.geometry.assignment import match
from swift_vlrft.geometry.box_format import FORMATS, Corners
from swift_vlrft.geometry.boxes import Box, by_left, overlapping_pairs
from swift_vlrft.parsing.answers import Answer
from swift_vlrft.rewards import Task

LEAST_BOXES = 8
"""Fewer predictions than this say nothing about a box format."""
MOST_ROWS = 512
"""Rows that are kept; a cause is found in fewer."""
SHARE = 0.3
"""Of the boxes that miss, as many at least have a cause, or none is named."""
LEAST_IOU = 0.6
SURE_IOU = 0.75
"""The mean IoU that a cause needs where all golds are alike, so that chance cannot be measured."""
BEYOND = 1.05
"""Boxes that reach further beyond the image than that are in another format, not badly placed."""
NEAR = 1.25
"""A fitted scale nearer to the gold's than this factor is that of a model that is not exact."""

Scale = tuple[float, float]
ORDERS = {
    "": lambda a, b, c, d: (a, b, c, d),
    "y1, x1, y2, x2": lambda a, b, c, d: (b, a, d, c),
    "x, y, width, height": lambda a, b, c, d: (a, b, a + c, b + d),
}
ASK = "ask for x1, y1, x2, y2 in the prompt"
ADVICE = {"": "use SET:native", "y1, x1, y2, x2": f"{ASK}, or use SET:yx1000 (key box_2d)"}
OTHER_SIZE = "pixels of another size than the gold's"
WORDS = {"": "", "unit": "shares from 0 to 1", "norm1000": "thousandths"}


@dataclass(slots=True, eq=False)
class _Row:
    """``answered``: as written; ``gold``: in shares of the image, whose edges are ``own``,
    or in pixels, if they are not known: then ``scales``, the edges by format, is empty.
    """

    answered: list[Corners]
    gold: tuple[Box, ...]
    own: Scale
    scales: dict[str, Scale]
    stated: bool
    """If true, the row says in which format its gold is."""
    points: bool


class _Fit(NamedTuple):
    rows: list[_Row]
    boxes: int
    iou: float
    """Summed over the boxes."""


class _Reading(NamedTuple):
    order: str
    scale: str
    fitted: Scale | None = None

    def of(self, row: _Row) -> Scale | None:
        return self.fitted or row.scales.get(self.scale, None if self.scale else row.own)


class BoxFormatCheck:
    """Collects boxes of many rows: call ``add_row`` for each, then ``problem``."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []

    def add_row(self, task: Task, gold: Any, answer: Answer, row: Mapping[str, Any]) -> None:
        """Add a row of a task whose golds are boxes."""
        golds: list[Box] = [gold] if isinstance(gold, tuple) else gold.boxes
        if len(self.rows) >= MOST_ROWS or not golds:
            return
        points = answer.placed(points=True) if task.has_points else None
        boxes = points.boxes if points else written_boxes(answer.text or "") * (not task.has_points)
        if not (boxes := [box for box in boxes if box]):
            return
        known, size = FORMATS.get(str(row.get("frame"))), size_of_row(row)
        in_pixels = known is not None and known.scale is None
        edge = float(known.scale) if known and known.scale else 1000.0
        own, scales = (edge, edge), {"unit": (1.0, 1.0), "norm1000": (1000.0, 1000.0)}
        if in_pixels and size is not None:
            own = size
        elif in_pixels or max(map(max, golds)) > 1000.0:
            own, scales = (1.0, 1.0), {}
        if size is not None and scales:
            scales |= {"pixels": size} | ({} if in_pixels else sizes_in_pixels(*size))
        shares = tuple(_scaled(box, own) for box in golds)
        self.rows.append(_Row(boxes, shares, own, scales, known is not None, task.has_points))

    def problem(self) -> str | None:
        """Return one sentence, or None if the box formats agree or too little was seen."""
        boxes = [box for row in self.rows for box in row.answered]
        if len(boxes) < LEAST_BOXES:
            return None
        if causes := list(self._causes(max(map(max, boxes)))):
            return "; ".join(causes)
        golds = (
            max(box[2] * row.own[0], box[3] * row.own[1]) for row in self.rows for box in row.gold
        )
        known = [row for row in self.rows if row.scales]
        number, what = sum(max(box) <= 1.0 for box in boxes), "have all coordinates under 1"
        if number <= 0.9 * len(boxes) or max(golds) <= 1.0:
            beyond = (max(_scaled(box, row.own)) > BEYOND for row in known for box in row.answered)
            if (number := sum(beyond)) <= 0.2 * len(boxes):
                return None
            wide, high = known[0].own
            what = f"reach beyond {f'{wide:g}' if wide == high else 'the image'}"
        return (
            f"the predictions are in another box format than the gold: {number} of {len(boxes)} "
            f"boxes {what}. Use SET:native for the box format that the model was trained on"
        )

    def _causes(self, largest: float) -> Iterator[str]:
        rows = [row for row in self.rows if not row.points]
        if any(not row.stated and not row.scales for row in rows):
            rows = [row if row.stated else _in_pixels(row) for row in rows]
        missed = [row for row in rows if _fit([row], _Reading("", "")).iou < _half(row)]
        total = sum(len(row.answered) for row in missed)
        while missed and total >= LEAST_BOXES:
            best, fit = None, _Fit([], 0, 0.0)
            for reading in _readings(missed):
                other = _fit(missed, reading)
                # A scale that is fitted is never worse than the one that it comes near to.
                if other.iou * (0.9 if reading.fitted else 1.0) > fit.iou:
                    best, fit = reading, other
            if best is None or not _is_cause(missed, best, fit, total):
                return
            yield (
                f"{fit.boxes} of {total} misplaced boxes match (mean IoU "
                f"{fit.iou / fit.boxes:.2f}) if read as {_said(best, fit.rows, largest)}"
            )
            explained = set(map(id, fit.rows))
            missed = [row for row in missed if id(row) not in explained]


def _said(reading: _Reading, rows: list[_Row], largest: float) -> str:
    """A reading in words, and what to do; ``largest`` of all numbers that were written."""
    first, (order, scale, fitted) = rows[0], reading
    of, gold = reading.of(first) or first.own, ""
    if fitted:
        scale = "pixels"
        # Pixels of so large an image would have been over 1000.
        if not first.scales or (not first.stated and min(of) > 1000.0 >= largest):
            scale = "unit" if largest <= 1.0 else "norm1000" if largest <= 1000.0 else ""
            edge = 1.0 if scale == "unit" else 1000.0
            of = edge * first.own[0] / of[0], edge * first.own[1] / of[1]
            gold = ", the gold as pixels of {}" * bool(scale)
    alike = fitted or len({reading.of(row) for row in rows}) == 1
    size = f"{of[0]:.0f} x {of[1]:.0f}" if alike else "each image"
    what, advice = WORDS.get(scale, f"pixels of {size}") + gold.format(size), f"use SET:{scale}"
    if scale not in WORDS | FORMATS:
        what, advice = f"{what}, as {scale} sees the image", "use SET:pixels"
    if not scale:
        what, advice = "" if order else OTHER_SIZE, ADVICE.get(order, ASK)
    elif order:
        advice += f", and {ASK}"
    return f"{' in '.join(filter(None, (order, what)))}: {advice}"


def _readings(rows: list[_Row]) -> Iterator[_Reading]:
    names = dict.fromkeys(name for row in rows for name in ("", *row.scales))
    for order in ORDERS:
        yield from (_Reading(order, name) for name in names if order or name)
    for order, corners in ORDERS.items():
        ratios = [
            [
                sum(sum(corners(*box)[axis::2]) for box in row.answered)
                / (sum(sum(box[axis::2]) for box in row.gold) or math.inf)
                for axis in (0, 1)
            ]
            for row in rows
            if len(row.answered) == len(row.gold)
        ]
        if len(ratios) < LEAST_BOXES:
            return
        x, y = (median(of_axis) for of_axis in zip(*ratios, strict=True))
        own = rows[0].own
        near = all(1 / NEAR < ratio / edge < NEAR for ratio, edge in zip((x, y), own, strict=True))
        if min(x, y) > 0.0 and not near:
            yield _Reading(order, "", (x, y))


def _is_cause(rows: list[_Row], reading: _Reading, fit: _Fit, total: int) -> bool:
    if fit.boxes < max(LEAST_BOXES, SHARE * total):
        return False
    golds = list(dict.fromkeys(row.gold for row in rows))
    mean = fit.iou / fit.boxes
    if len(golds) < 4:
        return mean >= SURE_IOU and reading.fitted is None
    chance = 0
    for step in (1, len(golds) // 2):
        other = dict(zip(golds, golds[step:] + golds[:step], strict=True))
        of_others = [replace(row, gold=other[row.gold]) for row in rows]
        chance = max(chance, _fit(of_others, reading).boxes)
    return mean >= LEAST_IOU and fit.boxes >= 3 * chance


def _fit(rows: list[_Row], reading: _Reading) -> _Fit:
    """What matches under a reading, in the rows whose boxes mostly do."""
    matched, boxes, iou = [], 0, 0.0
    corners = ORDERS[reading.order]
    for row in rows:
        if (scale := reading.of(row)) is None:
            continue
        read_so = [_scaled(corners(*box), scale) for box in row.answered]
        valid = [box for box in read_so if box[0] < box[2] and box[1] < box[3]]
        pairs = match(overlapping_pairs(valid, by_left(row.gold), 0.5))
        overlap = sum(pair[2] for pair in pairs)
        if overlap >= _half(row):
            matched.append(row)
            boxes += len(pairs)
            iou += overlap
    return _Fit(matched, boxes, iou)


def _in_pixels(row: _Row) -> _Row:
    """A row whose gold is pixels of an image of no known size."""
    by = 1 / row.own[0], 1 / row.own[1]
    golds = tuple(_scaled(box, by) for box in row.gold)
    return replace(row, gold=golds, own=(1.0, 1.0), scales={}, stated=False)


def _half(row: _Row) -> float:
    return 0.5 * max(len(row.answered), len(row.gold))


def _scaled(box: Corners, by: Scale) -> Box:
    return box[0] / by[0], box[1] / by[1], box[2] / by[0], box[3] / by[1]
