"""Boxes as a tool would write them, computed apart from the package."""

from swift_vlrft.geometry.readings import UNITS, Reading


def written(box, reading: Reading, size) -> list[float]:
    """The numbers that a tool would write for corners in pixels."""
    x1, y1, x2, y2 = (v / s for v, s in zip(box, size * 2, strict=True))
    width, height = UNITS[reading.unit] and (UNITS[reading.unit],) * 2 or size
    x1, y1, x2, y2 = x1 * width, y1 * height, x2 * width, y2 * height
    return {
        "xyxy": [x1, y1, x2, y2],
        "yxyx": [y1, x1, y2, x2],
        "xywh": [x1, y1, x2 - x1, y2 - y1],
        "cxcywh": [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1],
    }[reading.boxes]
