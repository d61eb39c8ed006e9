"""Tell whether the boxes of a set, taken together, can be in the format that it declares.

    frame pixels, [0.12, 0.30, 0.45, 0.60] in every row       shares of the sides
    frame pixels, beyond the images, nowhere over 1000        norm1000
    frame norm1000, nowhere over 100                          percent

Row by row, each such box is a small one in the corner of its image, and trains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from swift_vlrft.datasets import units
from swift_vlrft.datasets.image import ImageSize
from swift_vlrft.datasets.row import Row
from swift_vlrft.datasets.units import ENOUGH, UNKNOWN, Reading
from swift_vlrft.parsing.answers import gold_text, read_boxes

KEPT = 10_000
"""So many boxes of a set are judged: its first boxes."""
MANY = 20
"""So many boxes do not all lie within what pixels could be by chance."""
AMONG = [Reading("xyxy", unit) for unit in units.UNITS]
THOUSANDTHS = Reading("xyxy", "norm1000")
READ_AS = {"pixels": Reading("xyxy"), "norm1000": THOUSANDTHS, "yx1000": THOUSANDTHS}


@dataclass
class DeclaredBoxes:
    """The first boxes of a set with the sizes of their images, by the format that rows declare."""

    boxes: dict[str, list[units.Box]] = field(default_factory=dict)

    def __add__(self, other: DeclaredBoxes) -> DeclaredBoxes:
        both = {**self.boxes, **other.boxes}
        return DeclaredBoxes(
            {name: self.boxes.get(name, []) + other.boxes.get(name, []) for name in both}
        )

    def add(self, row: Row, info: ImageSize | None) -> None:
        """Add the boxes of a row as it is stored."""
        frame = row.columns.get("frame")
        if frame not in READ_AS or not row.has_boxes:
            return
        boxes = self.boxes.setdefault(frame, [])
        if len(boxes) < KEPT and (gold := read_boxes(gold_text(row.solution))) is not None:
            size = (info.width, info.height) if info is not None else UNKNOWN
            boxes += [(box, size) for box in gold.boxes if box is not None]

    def problem(self, path: Path) -> str | None:
        """Say why the set cannot be meant as declared, and what to declare; None if it can."""
        for frame, boxes in self.boxes.items():
            reading = READ_AS[frame]
            sized = [box for box in boxes if box[1] != UNKNOWN]
            outside = len(units.leaving(sized, reading)) if len(sized) >= ENOUGH else 0
            if misfit := units.misfit(sized or boxes, reading, outside, AMONG):
                said, others = misfit
                names = [other.unit for other in others if other.unit != "percent"]
                if not names:
                    do = "multiply them by 10 to get norm1000" if others else "correct them"
                    return f"{said}; {do}"
                return (
                    f"{said}; they fit {' or '.join(map(str, others))}. Say "
                    f"so in a column frame ({' or '.join(names)}), or, where rows have none, with "
                    f"vlrft data convert {path} OUT --unit {names[0]}"
                )
        return None

    def notes(self, path: Path) -> list[str]:
        boxes = self.boxes.get("norm1000", [])
        low = [box for box in boxes if max(box[1]) < 900]
        if len(low) < MANY or units.leaving(low, READ_AS["pixels"]):
            return []
        return [
            f"{path}: none of {len(low)} boxes declared as norm1000 reaches beyond its image's "
            "width and height in pixels: they look like pixels. If they are, add a column frame "
            "with the value pixels."
        ]
