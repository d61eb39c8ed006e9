"""Ask what a COCO file itself says of its boxes: polygons and areas may contradict their reading.

"bbox": [12, 30, 88, 120], "area": 6840     corners, as 88 x 120 is no area of 6,840
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.schema import LOOKED_AT, MisreadBoxes
from swift_vlrft.geometry.box_format import Corners
from swift_vlrft.geometry.readings import (
    ENOUGH,
    MOST,
    READINGS,
    ROUNDING,
    Reading,
    SizedBox,
    corners,
    fits,
    ways,
)


def outlines_as_boxes() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """For json's ``object_hook``: the first outlines become boxes, and the others are let go."""
    seen = count()

    def hook(entry: dict[str, Any]) -> dict[str, Any]:
        if "segmentation" in entry:
            looked_at = next(seen) < LOOKED_AT
            entry["segmentation"] = _outer_box(entry["segmentation"]) if looked_at else None
        return entry

    return hook


def _outer_box(polygons: Any) -> list[float] | None:
    """The corners of the box around polygons; None for a mask in runs, or another value."""
    try:
        xs = [float(side(p[::2])) for p in polygons for side in (min, max)]
        ys = [float(side(p[1::2])) for p in polygons for side in (min, max)]
        return [min(xs), min(ys), max(xs), max(ys)]
    except (TypeError, ValueError):
        return None


def _area(box: Corners) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


EVIDENCE: tuple[tuple[str, Callable[[Corners, Any], bool]], ...] = (
    (
        "segmentation",
        lambda box, outer: max(abs(a - b) for a, b in zip(box, outer, strict=True)) <= ROUNDING,
    ),
    ("area", lambda box, area: 0.99 * area <= _area(box) <= 1.01 * area),
    ("area", lambda box, area: area <= 1.01 * _area(box)),
)
"""What a file says of a box besides its numbers, and whether that goes with the box."""


def refuse_contradicted(
    path: Path, entries: list[dict[str, Any]], boxes: list[SizedBox], reading: Reading
) -> None:
    """Raise MisreadBoxes where polygons, or areas, of entries say that their boxes are of another
    reading.
    """
    for key, agrees in EVIDENCE:
        judged = [
            (*box, value)
            for entry, box in islice(zip(entries, boxes, strict=True), LOOKED_AT)
            if isinstance(value := entry.get(key), list | int | float)
        ]

        def fitting(way: Reading, judged: Any = judged, agrees: Any = agrees) -> int:
            return sum(
                fits(box, way, size) and agrees(corners(box, way, size), value)
                for box, size, value in judged
            )

        # That a box lies around a polygon in a wrong reading is no chance; of an area it may be.
        enough = max(MOST * len(judged), 1 if key == "segmentation" else ENOUGH)
        if fitting(reading) >= enough:
            return
        if better := [way for way in READINGS if fitting(way) >= enough]:
            raise MisreadBoxes(
                f"{path}: {fitting(reading)} of {len(judged)} boxes agree with their "
                f"{key} as {reading}, and {fitting(better[0])} {ways(better, '; or ')}: say which "
                "is meant, to vlrft data coco or vlrft data convert, or correct them"
            )
