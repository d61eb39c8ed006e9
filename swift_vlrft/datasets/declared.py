"""Tell whether the boxes of a set, taken together, can be in the format that it declares.

    frame pixels, [0.12, 0.30, 0.45, 0.60] in every row       shares of the sides
    frame pixels, beyond the images, nowhere over 1000        norm1000
    frame norm1000, nowhere over 100                          percent

Row by row, each such box is a small one in the corner of its image, and trains.
"""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.datasets.image import ImageSize
from swift_vlrft.datasets.row import Row
from swift_vlrft.geometry.readings import ENOUGH, UNITS, UNKNOWN, Reading, SizedBox, misfit

KEPT = 10_000
"""So many boxes of a set are judged: its first boxes."""
READINGS = {unit: Reading("xyxy", unit) for unit in UNITS}
UNITS_OF = {"pixels": "pixels", "norm1000": "norm1000", "yx1000": "norm1000"}

DeclaredBoxes = dict[str, list[SizedBox]]
"""The first boxes of a set with the sizes of their images, by the unit that rows declare."""


def add_boxes(declared: DeclaredBoxes, row: Row, info: ImageSize | None) -> None:
    """Add the boxes of a row as it is stored."""
    unit = UNITS_OF.get(row.columns.get("frame") or "")
    if unit is not None and len(boxes := declared.setdefault(unit, [])) < KEPT:
        size = (info.width, info.height) if info is not None else UNKNOWN
        boxes += [(box, size) for box in row.boxes if box is not None]


def misdeclared(declared: DeclaredBoxes, path: Path) -> str | None:
    """Say why the set cannot be meant as declared, and what to declare; None if it can."""
    for unit, boxes in declared.items():
        sized = [box for box in boxes if box[1] != UNKNOWN]
        judged = sized or boxes
        others = ["unit"]  # of few boxes, each row says what else is wrong
        if len(judged) >= ENOUGH:
            others += ["norm1000", "percent", *(["pixels"] if sized else [])]
        wrong = misfit(judged, READINGS[unit], [READINGS[other] for other in others])
        if wrong is None:
            continue
        if not (names := [way.unit for way in wrong.better if way.unit != "percent"]):
            return f"{wrong.said()}; multiply them by 10 to get norm1000"
        return (
            f"{wrong.said()}. Say so in a column frame ({' or '.join(names)}), or, where rows "
            f"have none, with vlrft data convert {path} OUT --unit {names[0]}"
        )
    return None
