"""The four numbers of a box have an order, and a unit that they count in.

    on a picture of 640 x 480, the box whose corners are (160, 120) and (480, 360) in pixels
    xywh    pixels      [160, 120, 320, 240]        COCO's own: left, top, width, height
    xyxy    pixels      [160, 120, 480, 360]        left, top, right, bottom
    cxcywh  unit        [0.5, 0.5, 0.5, 0.5]        YOLO's: centre, width, height, in shares
    xyxy    percent     [25, 25, 75, 75]
    xyxy    norm1000    [250, 250, 750, 750]

Nothing is guessed: who reads a set states one reading, and where that cannot be meant, ``refusal``
says which readings could be, and with which options to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from swift_vlrft.datasets.source import DataError
from swift_vlrft.geometry.box_format import Corners

ORDERS = {
    "xywh": "x, y, width, height",
    "xyxy": "corners x1, y1, x2, y2",
    "cxcywh": "centre x, centre y, width, height",
}
UNITS = {"pixels": 0, "unit": 1, "percent": 100, "norm1000": 1000}
"""Units, with the number of the right and the lower edge; 0: the picture's width and height."""
ROUNDING = 2.0
"""Pixels by which an edge may lie outside the picture: tools round, and some count from 1."""
NEARLY_ALL = 0.95
"""Share of the boxes that a reading must fit to be named: a file may hold a slip or two."""
LARGEST_SHARE = 1.01
OUTSIDE = f"leaves its image by more than {ROUNDING:g} pixels, ends before it begins, or is a dot,"
ENOUGH = 10
"""So many boxes do not all lie in the first tenth of their images by chance."""
SMALL = 200
"""The longest side of an image whose boxes in pixels may all be under 100."""

Numbers = Sequence[float]
"""The four numbers of a box, as they are stored."""
PictureSize = tuple[float, float]
"""Width and height in pixels."""
Box = tuple[Numbers, PictureSize]
UNKNOWN: PictureSize = (1e9, 1e9)
"""It stands for an unknown picture size: nothing reaches beyond it."""


class MisreadBoxes(DataError):
    """The boxes of a set cannot be meant as they are read, or could be meant in several ways."""


class Reading(NamedTuple):
    """The order and the unit of the numbers of a box."""

    boxes: str = "xywh"
    unit: str = "pixels"

    def __str__(self) -> str:
        unit = "shares of the sides" if self.unit == "unit" else self.unit
        return f"{ORDERS[self.boxes]} in {unit}"

    @property
    def flags(self) -> str:
        """Return the options that select it on the command line."""
        unit = "" if self.unit == "pixels" else f" --unit {self.unit}"
        return f"--boxes {self.boxes}{unit}"


READINGS = [Reading(order, unit) for unit in UNITS for order in ORDERS]


def reading_named(boxes: str, unit: str) -> Reading:
    """Return the reading of ``--boxes`` and ``--unit``; DataError lists the known values."""
    for flag, value, known in (("--boxes", boxes, ORDERS), ("--unit", unit, UNITS)):
        if value not in known:
            raise DataError(f"{flag} {value}: unknown; known: {', '.join(known)}")
    return Reading(boxes, unit)


def corners(box: Numbers, reading: Reading, size: PictureSize) -> Corners:
    """Return the left, top, right and bottom edge in pixels, wherever they lie."""
    a, b, c, d = box
    if edge := UNITS[reading.unit]:
        (width, height) = size
        # Multiplied first: of whole numbers, only the division rounds.
        a, b, c, d = a * width / edge, b * height / edge, c * width / edge, d * height / edge
    if reading.boxes == "xyxy":
        return a, b, c, d
    if reading.boxes == "cxcywh":
        a, b = a - c / 2, b - d / 2
    return a, b, a + c, b + d


def is_inside(box: Corners, size: PictureSize) -> bool:
    """Tell whether corners in pixels are in order and leave the picture by ``ROUNDING`` at most."""
    x1, y1, x2, y2 = box
    return (
        -ROUNDING <= x1 <= x2 <= size[0] + ROUNDING and -ROUNDING <= y1 <= y2 <= size[1] + ROUNDING
    )


def clipped(box: Corners, size: PictureSize) -> Corners | None:
    """Return the part of the box that the picture holds, in pixels; None if it has no area."""
    x1, y1 = max(box[0], 0.0), max(box[1], 0.0)
    x2, y2 = min(box[2], size[0]), min(box[3], size[1])
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None


def is_dot(box: Numbers) -> bool:
    """Tell whether no number is above 1: in any unit but shares, the box is a dot in the corner."""
    return max(box) <= LARGEST_SHARE


def are_shares(boxes: Sequence[Numbers]) -> bool:
    return bool(boxes) and sum(map(is_dot, boxes)) >= NEARLY_ALL * len(boxes)


def are_percent(boxes: Sequence[Box], unit: str) -> bool:
    """Tell whether, of ten boxes or more in pixels or norm1000, nearly none has a number over 100:
    all would lie in the upper left corner, of images of over 200 pixels at least.
    """
    if unit == "pixels":
        boxes = [box for box in boxes if SMALL < max(box[1]) < UNKNOWN[0]]
    elif unit != "norm1000":
        return False
    return len(boxes) >= ENOUGH and sum(max(b) <= 100 for b, _ in boxes) >= NEARLY_ALL * len(boxes)


def fitting(boxes: Sequence[Box], among: Sequence[Reading] = READINGS) -> list[Reading]:
    """Return the readings under which nearly all boxes of a set lie inside their pictures.

    Several: the numbers do not tell. None: the set has no boxes, or no one reading.
    """
    if are_shares([box for box, _ in boxes]):
        among = [reading for reading in among if reading.unit == "unit"]
    enough = NEARLY_ALL * len(boxes)
    return [way for way in among if boxes and len(boxes) - len(leaving(boxes, way)) >= enough]


def leaving(boxes: Sequence[Box], reading: Reading) -> list[int]:
    """Return the numbers of the boxes that are not inside their pictures in this reading."""
    read = ((corners(box, reading, size), size) for box, size in boxes)
    return [number for number, (box, size) in enumerate(read) if not is_inside(box, size)]


def misfit(
    boxes: Sequence[Box],
    reading: Reading,
    outside: int,
    among: Sequence[Reading] = READINGS,
    *,
    stated: bool = False,
) -> tuple[str, list[Reading]] | None:
    """Say why the boxes of a set, of which so many are ``outside`` their pictures, cannot be meant
    as ``reading``, and return those of ``among`` that fit; None if they can be.

    They cannot be if nearly all are shares or percent, or if a tenth is outside (half of them where
    a command has ``stated`` the reading), and under another reading nearly none is.
    """
    count = f"{len(boxes)} boxes"
    if reading.unit != "unit" and are_shares([box for box, _ in boxes]):
        why = f"hardly a number of its {count} is above 1: they are shares, not {reading}"
        return why, fitting(boxes, among)
    if are_percent(boxes, reading.unit):
        units = {"percent"}
        sized = any(size != UNKNOWN for _, size in boxes)
        if sized and reading.unit == "norm1000" and not are_percent(boxes, "pixels"):
            units.add("pixels")  # of small images
        among = [other for other in among if other.unit in units]
        why = f"hardly a number of its {count} is above 100: they are percent, not {reading}"
        return (why, others) if (others := fitting(boxes, among)) else None
    many = outside * (2 if stated else 10) >= len(boxes)
    if outside and many and (others := fitting(boxes, among)):
        return f"{outside} of {count}: each {OUTSIDE} if they are {reading}", others
    return None


def refusal(
    boxes: Sequence[Box],
    reading: Reading,
    outside: Sequence[int],
    shown: Callable[[int], str],
    takers: str,
    *,
    stated: bool = False,
) -> str | None:
    """Say the same as a message, which names the options and the commands that take them;
    ``outside`` are the numbers of the boxes outside, ``shown`` describes the box of a number.
    """
    fault = misfit(boxes, reading, len(outside), stated=stated)
    if fault is None:
        return None
    what = f"{fault[0]}, such as {shown(outside[0] if outside else 0)}"
    if not fault[1]:
        return f"{what}; correct the file"
    slips = f"; if these are slips, {reading.flags} leaves their images out" * bool(outside)
    return f"{what}; they fit {_ways(fault[1], takers)}{slips}"


def told_by(
    boxes: Sequence[Box],
    among: Sequence[Reading],
    shown: Callable[[int], str],
    takers: str,
    *,
    stated: bool = False,
) -> Reading:
    """Return the reading of ``among`` that the boxes of a set fit best. MisreadBoxes where they
    cannot be meant so, and where several fit as well (nearly all boxes, or as many) and differ.
    """
    outside = {reading: leaving(boxes, reading) for reading in among}
    best = min(among, key=lambda reading: len(outside[reading]))
    if text := refusal(boxes, best, outside[best], shown, takers, stated=stated):
        raise MisreadBoxes(text)
    most = max(len(outside[best]), (1 - NEARLY_ALL) * len(boxes))
    ties = [reading for reading in among if len(outside[reading]) <= most]
    for i, (box, size) in enumerate(boxes):
        if len({corners(box, reading, size) for reading in ties}) > 1:
            number = len(boxes) - max(len(outside[reading]) for reading in ties)
            raise MisreadBoxes(
                f"its boxes, such as {shown(i)}, fit several readings: {number} of "
                f"{len(boxes)} lie inside their pictures {_ways(ties, takers, ' and ')}"
            )
    return best


def _ways(readings: Sequence[Reading], takers: str, between: str = "; or ") -> str:
    ways = between.join(f"as {reading} ({reading.flags})" for reading in readings)
    return f"{ways}: say which is meant, to {takers}"
