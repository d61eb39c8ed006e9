"""In which format are these boxes? The readings that four numbers can have, and how well each fits.

    on a picture of 640 x 480, the box whose corners are (160, 120) and (480, 360) in pixels
    xywh    pixels      [160, 120, 320, 240]        COCO's own: left, top, width, height
    xyxy    pixels      [160, 120, 480, 360]        left, top, right, bottom
    yxyx    norm1000    [250, 250, 750, 750]        Google's: top, left, bottom, right
    cxcywh  unit        [0.5, 0.5, 0.5, 0.5]        YOLO's: centre, width, height, in shares
    xyxy    percent     [25, 25, 75, 75]

Nothing is guessed: a set states one reading, or its published form does. A reading fits a set if
99 in a hundred boxes lie inside their pictures. ``misfit`` refuses a stated one that does not fit
where another one does, and proposes: other orders in the stated unit; only where none fits, other
units; and thousandths only where a tenth of the boxes reach 900, since in pictures of fewer pixels
nearly every box in pixels would fit as thousandths, too. Where nothing fits, each box is
wrong by itself. ``cause`` is the reading that puts most of a model's misplaced boxes onto the gold.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from swift_vlrft.geometry.assignment import match
from swift_vlrft.geometry.box_format import Corners
from swift_vlrft.geometry.boxes import Box, array_of, overlap_table

ORDERS = {
    "xywh": "x, y, width, height",
    "xyxy": "corners x1, y1, x2, y2",
    "cxcywh": "centre x, centre y, width, height",
    "yxyx": "corners y1, x1, y2, x2",
}
UNITS = {"pixels": 0, "unit": 1, "percent": 100, "norm1000": 1000}
"""Units, with the number of the right and the lower edge; 0: the picture's width and height."""
FITS = 0.99
"""A reading fits a set if it fits as large a share of the boxes: some boxes are slips."""
MOST = 0.9
"""A reading is proposed if it fits as many, and more than the stated one."""
FAR_EDGE = 900
"""Boxes of which fewer than a tenth reach it are not proposed to be in norm1000."""
ROUNDING = 2.0
"""Pixels by which an edge may lie outside the picture: tools round, and some count from 1."""
LARGEST_SHARE = 1.01
ENOUGH = 10
"""Fewer boxes say nothing of a set: by chance, all may lie in one corner of their images."""
HIT_IOU = 0.5

Numbers = Sequence[float]
"""The four numbers of a box, as they are stored."""
PictureSize = tuple[float, float]
"""Width and height in pixels."""
SizedBox = tuple[Numbers, PictureSize]
UNKNOWN: PictureSize = (1e9, 1e9)
"""It stands for an unknown picture size: nothing reaches beyond it."""


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
    """Return the reading of ``--boxes`` and ``--unit``; ValueError lists the known values."""
    for flag, value, known in (("--boxes", boxes, ORDERS), ("--unit", unit, UNITS)):
        if value not in known:
            raise ValueError(f"{flag} {value}: unknown; known: {', '.join(known)}")
    return Reading(boxes, unit)


def corners(box: Numbers, reading: Reading, size: PictureSize) -> Corners:
    """Return the left, top, right and bottom edge in pixels, wherever they lie."""
    a, b, c, d = box
    if reading.boxes == "yxyx":
        a, b, c, d = b, a, d, c
    if edge := UNITS[reading.unit]:
        (width, height) = size
        # Multiplied first: of whole numbers, only the division rounds.
        a, b, c, d = a * width / edge, b * height / edge, c * width / edge, d * height / edge
    if reading.boxes == "cxcywh":
        a, b = a - c / 2, b - d / 2
    return (a, b, c, d) if reading.boxes in ("xyxy", "yxyx") else (a, b, a + c, b + d)


def is_dot(box: Numbers) -> bool:
    """Tell whether no number is above 1: in any unit but shares, the box is a dot in the corner."""
    return max(box) <= LARGEST_SHARE


def fits(box: Numbers, reading: Reading, size: PictureSize) -> bool:
    """Tell whether corners are in order, inside the picture (``ROUNDING``), and no dot."""
    x1, y1, x2, y2 = corners(box, reading, size)
    in_x = -ROUNDING <= x1 <= x2 <= size[0] + ROUNDING
    in_y = -ROUNDING <= y1 <= y2 <= size[1] + ROUNDING
    return in_x and in_y and (reading.unit == "unit" or not is_dot(box))


def clipped(box: Corners, size: PictureSize) -> Corners | None:
    """Return the part of the box that the picture holds, in pixels; None if it has no area."""
    x1, y1 = max(box[0], 0.0), max(box[1], 0.0)
    x2, y2 = min(box[2], size[0]), min(box[3], size[1])
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None


def leaving(boxes: Sequence[SizedBox], reading: Reading) -> list[int]:
    """Return the numbers of the boxes that the reading does not fit."""
    return [n for n, (box, size) in enumerate(boxes) if not fits(box, reading, size)]


def shares(boxes: Sequence[SizedBox], among: Sequence[Reading] = READINGS) -> dict[Reading, float]:
    """Return the share of the boxes that each reading fits: none where percent would all lie in the
    upper left corner.
    """
    cornered = {unit for unit in {way.unit for way in among} if _are_percent(boxes, unit)}
    total = max(1, len(boxes))
    return {
        way: 0.0 if way.unit in cornered else (total - len(leaving(boxes, way))) / total
        for way in among
    }


def _are_percent(boxes: Sequence[SizedBox], unit: str) -> bool:
    """Whether nearly no box has a number over 100, though sides are over twice as long."""
    if unit in ("unit", "percent"):
        return False
    edge = UNITS["percent"]
    large = [box for box, size in boxes if unit == "norm1000" or 2 * edge < max(size) < UNKNOWN[0]]
    return len(large) >= ENOUGH and sum(max(b) <= edge for b in large) >= MOST * len(large)


class Misfit(NamedTuple):
    """``outside`` of ``total`` boxes, from ``first`` on, cannot be meant as ``reading``.
    Under each of the ``better`` readings ``fitting`` of them can.
    """

    reading: Reading
    outside: int
    total: int
    first: int
    better: list[Reading]
    fitting: int

    def said(self, first: str = "") -> str:
        """Say so in one sentence; ``first`` describes the first such box, and asks for options."""
        others = ways(self.better, "; or ") if first else f"as {' or '.join(map(str, self.better))}"
        return (
            f"{self.outside} of {self.total} boxes{first and f', such as {first},'} do not fit "
            f"their images as {self.reading}; {self.fitting} fit {others}"
        )


def misfit(
    boxes: Sequence[SizedBox], reading: Reading, among: Sequence[Reading] = READINGS
) -> Misfit | None:
    """Say that ``reading`` does not fit a set's boxes where another one of ``among`` does."""
    share = shares(boxes, [reading])[reading]
    if not boxes or share >= FITS or (len(boxes) < ENOUGH and share > 0.5):
        return None
    far = 10 * sum(max(box) >= FAR_EDGE for box, _ in boxes) >= len(boxes)
    others = {
        way: s
        for way, s in shares(boxes, among).items()
        if s >= MOST and s > share and (far or way.unit != "norm1000")
    }
    if not others:
        return None
    tried = [way for way in others if way.unit == reading.unit] or [*others]
    best = max(others[way] for way in tried)
    better = [way for way in tried if others[way] == best]
    outside, total = leaving(boxes, reading), len(boxes)
    counts = total - round(share * total), total, outside[0] if outside and share else 0
    return Misfit(reading, *counts, better, round(best * total))


def ways(readings: Iterable[Reading], between: str) -> str:
    """List readings with the options that state them."""
    return between.join(f"as {reading} ({reading.flags})" for reading in readings)


class Answer(NamedTuple):
    """The boxes of an answer as they are written, beside the gold boxes.

    Gold boxes are in shares of the picture; the reading is the one that is meant; sizes are those
    that pixels may refer to, by name, the picture's under "".
    """

    boxes: Sequence[Numbers]
    golds: tuple[Box, ...]
    own: Reading
    sizes: Mapping[str, PictureSize]


class Cause(NamedTuple):
    """Another reading in which boxes that miss the gold lie on it.

    Of ``total`` boxes ``matched`` do, pixels being those of the sizes called ``name``; these are
    ``sizes``.
    """

    reading: Reading
    name: str
    matched: int
    total: int
    sizes: list[PictureSize]


def matches(answers: Iterable[Answer], reading: Reading | None, name: str = "") -> list[float]:
    """Return the IoU of each box that lies on a gold box in a reading, or in the answer's own."""
    found = []
    for boxes, golds, own, sizes in answers:
        (width, height) = size = sizes.get(name, UNKNOWN)
        read = (corners(box, reading or own, size) for box in boxes)
        valid: list[Box | None] = [
            (x1 / width, y1 / height, x2 / width, y2 / height)
            for x1, y1, x2, y2 in read
            if x1 < x2 and y1 < y2
        ]
        found += match(overlap_table(array_of(valid), array_of(golds), HIT_IOU))
    return [overlap for _, _, overlap in found]


def cause(answers: Sequence[Answer]) -> Cause | None:
    """Return the other reading under which most of the boxes that miss lie on the gold. None where
    there is none.
    """
    missed = [one for one in answers if len(matches([one], None)) * 2 < max(map(len, one[:2]))]
    total = sum(len(answer.boxes) for answer in missed)
    if total < ENOUGH:
        return None
    names = dict.fromkeys(["", *(name for answer in missed for name in answer.sizes)])
    tried = {
        (reading, name): matches(missed, reading, name)
        for reading in READINGS
        for name in (names if reading.unit == "pixels" else [""])
    }
    unit = missed[0].own.unit
    way = max(tried, key=lambda way: (sum(tried[way]), way[0].unit == unit))
    matched = len(tried[way])
    if way == (missed[0].own, "") or matched < ENOUGH or matched * 2 <= total:
        return None
    sizes = {answer.sizes.get(way[1], UNKNOWN) for answer in missed if matches([answer], *way)}
    return Cause(*way, matched, total, list(sizes))
