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
from swift_vlrft.datasets.units import LARGEST_SHARE, NEARLY_ALL, Reading, corners, is_inside
from swift_vlrft.parsing.answers import gold_text, read_boxes

ENOUGH = 10
"""Boxes of which it is no chance that all lie in the first tenth of their images."""
MANY = 20
"""Boxes of which it is no chance that none lies beyond what pixels could be."""
OTHERS = {"pixels": "norm1000", "norm1000": "pixels"}


@dataclass
class DeclaredBoxes:
    """By declared format: boxes, their largest number; of images whose size is known: how many
    boxes lie inside, read as each format, and the smallest of the larger sides.
    """

    boxes: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)
    sized: Counter[str] = field(default_factory=Counter)
    inside: Counter[tuple[str, str]] = field(default_factory=Counter)
    smallest: float = float("inf")
    like_pixels: int = 0
    """Boxes declared as norm1000 inside an image under 900 pixels; less than 0: not all are."""

    def __add__(self, other: DeclaredBoxes) -> DeclaredBoxes:
        largest = {
            frame: max(self.largest.get(frame, 0), other.largest.get(frame, 0))
            for frame in self.largest | other.largest
        }
        like = self.like_pixels + other.like_pixels
        return DeclaredBoxes(
            self.boxes + other.boxes,
            largest,
            self.sized + other.sized,
            self.inside + other.inside,
            min(self.smallest, other.smallest),
            -1 if min(self.like_pixels, other.like_pixels) < 0 else like,
        )

    def add(self, row: Row, info: ImageInfo | None) -> None:
        """A row as it is stored."""
        frame = row.columns.get("frame")
        if frame not in ("pixels", "norm1000", "yx1000") or not row.has_boxes:
            return
        gold = read_boxes(gold_text(row.solution))
        found = [box for box in (gold.boxes if gold is not None else ()) if box is not None]
        for box in found:
            self.boxes[frame] += 1
            self.largest[frame] = max(self.largest.get(frame, 0), *box)
        if info is None or not found:
            return
        size = info.width, info.height
        self.smallest = min(self.smallest, max(size))
        for box in found:
            self.sized[frame] += 1
            for unit in OTHERS:
                ok = is_inside(corners(box, Reading("xyxy", unit), size), size)
                self.inside[frame, unit] += ok
                if frame == "norm1000" and unit == "pixels" and max(size) < 900:
                    like = self.like_pixels
                    self.like_pixels = like + 1 if ok and like >= 0 else -1

    def problem(self, path: Path) -> str | None:
        """Why the set cannot be meant as it is declared, and what to declare; None if it can."""
        for frame, count in self.boxes.items():
            largest, sized = self.largest[frame], self.sized[frame]
            if largest <= LARGEST_SHARE:
                return (
                    f"{path}: no number of its {count} boxes is above 1: they are shares of the "
                    f"sides, not {frame}. Say so in a column frame, by the value unit"
                )
            small = frame == "pixels" and self.smallest < 200
            known = frame != "pixels" or sized >= ENOUGH
            if largest <= 100 and count >= ENOUGH and known and not small:
                return (
                    f"{path}: no number of its {count} boxes is above 100: they are percent, not "
                    f"{frame}. Multiply them by 10, and write norm1000 into a column frame"
                )
            if other := OTHERS.get(frame):
                out = sized - self.inside[frame, frame]
                if out * 2 > sized and self.inside[frame, other] >= NEARLY_ALL * sized:
                    return (
                        f"{path}: {out} of {sized} boxes leave their images as {frame}; they fit "
                        f"as {other}. Say so in a column frame, by the value {other}"
                    )
        return None

    def notes(self, path: Path) -> list[str]:
        if self.like_pixels < MANY:
            return []
        return [
            f"{path}: none of {self.like_pixels} boxes declared as norm1000 reaches beyond its "
            "image's width and height in pixels: they look like pixels. If they are, add a column "
            "frame with the value pixels."
        ]
