"""Whether the boxes of a set can be in the format that it declares: a question to all of them.

    frame pixels, [0.12, 0.30, 0.45, 0.60] in every row       shares of the sides
    frame pixels, beyond the images, nowhere over 1000        norm1000
    frame norm1000, nowhere over 100                          percent

Row by row, each such box is a small one in the corner of its image, and trains.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from swift_vlrft.datasets.image import ImageInfo
from swift_vlrft.datasets.row import Row
from swift_vlrft.datasets.units import (
    ENOUGH,
    NEARLY_ALL,
    SMALL,
    Reading,
    corners,
    is_dot,
    is_inside,
)
from swift_vlrft.parsing.answers import gold_text, read_boxes

MANY = 20
"""Boxes of which it is no chance that none lies beyond what pixels could be."""
OTHERS = {"pixels": "norm1000", "norm1000": "pixels"}


@dataclass
class DeclaredBoxes:
    """Counts of boxes, by what and by the format that their rows declare."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """all; dots: no number above 1; small: none above 100; large: on an image with a side over
    SMALL; sized: the image's size is known; pixels, norm1000: of these, inside, read as that.
    """

    def __add__(self, other: DeclaredBoxes) -> DeclaredBoxes:
        return DeclaredBoxes(self.counts + other.counts)

    def add(self, row: Row, info: ImageInfo | None) -> None:
        """A row as it is stored."""
        frame = row.columns.get("frame")
        if frame not in ("pixels", "norm1000", "yx1000") or not row.has_boxes:
            return
        gold = read_boxes(gold_text(row.solution))
        size = (info.width, info.height) if info is not None else None
        for box in gold.boxes if gold is not None else ():
            if box is None:
                continue
            high = max(box)
            large = size is not None and max(size) > SMALL
            what = {"all": True, "dots": is_dot(box), "small": high <= 100}
            what |= {"large": large, "small on large": large and high <= 100}
            if size is not None:
                what |= {"sized": True, "low": max(size) < 900}
                for unit in OTHERS:
                    what[unit] = is_inside(corners(box, Reading("xyxy", unit), size), size)
            self.counts.update((frame, name) for name, holds in what.items() if holds)

    def problem(self, path: Path) -> str | None:
        """Why the set cannot be meant as it is declared, and what to declare; None if it can."""
        for frame in dict.fromkeys(frame for frame, _ in self.counts):
            number = {name: self.counts[frame, name] for _, name in self.counts}
            boxes, dots, small = number["all"], number.get("dots", 0), number.get("small", 0)
            if dots >= NEARLY_ALL * boxes:
                return (
                    f"{path}: no number of {dots} of its {boxes} boxes is above 1: they are shares "
                    f"of the sides, not {frame}. Say so in a column frame, by the value unit, or, "
                    f"where rows have none, with vlrft data convert {path} OUT --unit unit"
                )
            if frame == "pixels":  # of a small image, all of them are
                boxes, small = number.get("large", 0), number.get("small on large", 0)
            if boxes >= ENOUGH and small >= NEARLY_ALL * boxes and 2 * dots < boxes:
                return (
                    f"{path}: no number of {small} of its {boxes} boxes is above 100: they are not "
                    f"{frame}. Say in a column frame what they are (pixels, unit), or, where rows "
                    f"have none, with vlrft data convert {path} OUT --unit pixels; percent are "
                    "norm1000 when they are multiplied by 10"
                )
            sized, other = number.get("sized", 0), OTHERS.get(frame, frame)
            out, fit = sized - number.get(frame, sized), number.get(other, 0)
            if sized >= ENOUGH and 10 * out >= sized and fit >= NEARLY_ALL * sized:
                return (
                    f"{path}: {out} of {sized} boxes leave their images as {frame}; they fit as "
                    f"{other}. Say so in a column frame, by the value {other}, or, where rows have "
                    f"none, with vlrft data convert {path} OUT --unit {other}"
                )
        return None

    def notes(self, path: Path) -> list[str]:
        boxes = self.counts["norm1000", "low"]
        if boxes < MANY or boxes != self.counts["norm1000", "pixels"]:
            return []
        return [
            f"{path}: none of {boxes} boxes declared as norm1000 reaches beyond its image's width "
            "and height in pixels: they look like pixels. If they are, add a column frame with the "
            "value pixels."
        ]
