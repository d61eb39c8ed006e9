"""Measure how well a crop shows the box to look at, the column ``zoom_box``.

zoom_box [400, 420, 440, 460]    crop [390, 410, 450, 470]    cover 1.0
"""

from collections.abc import Mapping
from typing import Any

from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import gold_text, read_boxes

ZOOM_BOX = "zoom_box"
FREE_AREA = 4
"""The area of a crop that costs nothing, in areas of the gold box."""


def one_box(value: Any) -> Box | None:
    """Return a box given as a list or as text; None where it is missing or cannot be read."""
    text = gold_text(value)
    boxes = read_boxes(text) if text else None
    return boxes.boxes[0] if boxes is not None and len(boxes) == 1 else None


def cover(crop: Box, gold: Box) -> float:
    """Return how well ``crop`` shows ``gold``: both in the same box format."""
    width = min(crop[2], gold[2]) - max(crop[0], gold[0])
    height = min(crop[3], gold[3]) - max(crop[1], gold[1])
    if width <= 0 or height <= 0:
        return 0.0
    gold_area = (gold[2] - gold[0]) * (gold[3] - gold[1])
    crop_area = (crop[2] - crop[0]) * (crop[3] - crop[1])
    return min(1.0, width * height / gold_area) * min(1.0, FREE_AREA * gold_area / crop_area)


def problem_of(columns: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a row's box to look at, if it has one."""
    text, frame = gold_text(columns.get(ZOOM_BOX)), columns.get("frame")
    if text in ("", "[]"):
        return None
    box = one_box(text)
    if box is None or min(box) < 0 or not 1 < max(box) <= 1000:
        wanted = "one box [x1, y1, x2, y2] in thousandths of width and height"
        return f"the {ZOOM_BOX} {text[:80]!r} is not {wanted}"
    if frame not in (None, *FORMATS):  # in which the boxes of calls are read
        return f"unknown frame {frame!r}; known: {', '.join(FORMATS)}"
    return None
