"""Read boxes that miss in other ways: is it the box format that is wrong?

    gold [250, 302, 750, 802], predictions [160, 145, 480, 385], ...
    "46 of 48 misplaced boxes match if read as corners x1, y1, x2, y2 in pixels of 640 x 480"

Tried are all readings (geometry/readings.py); pixels where the size of the image is known, also of
the sizes at which families see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.box_format import written_boxes
from swift_vlrft.datasets.image import image_size
from swift_vlrft.datasets.storage import image_of
from swift_vlrft.families import sizes_in_pixels
from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.geometry.readings import ENOUGH, UNITS, Answer, Cause, Reading, cause, leaving
from swift_vlrft.parsing.answers import Answer as Completion
from swift_vlrft.rewards import Task

MOST_ROWS = 512
"""Rows that are kept; a cause is found in fewer."""
NOWHERE = (1.0, 1.0)
"""The size of an image of no known size, for a gold in pixels."""
ASK = "ask for x1, y1, x2, y2 in the prompt"
YX1000 = ", or use SET:yx1000 (key box_2d)"


class BoxFormatCheck:
    """Collects boxes of many rows: call ``add_row`` for each, then ``problem``."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.points: list[Answer] = []
        self.said, self.keys = Counter[str](), Counter[str]()
        """Boxes, confidences and unread keys of all answers whose labels count."""

    def add_row(self, task: Task, gold: Any, answer: Completion, row: Mapping[str, Any]) -> None:
        """Add a row of a task whose golds are boxes.

        Without a frame they are norm1000 if they can be; else the row is not judged.
        """
        if task.headline == "AP" and (said := answer.boxes) is not None:
            missing = said.confidences.count(None) - said.outside
            self.said.update(boxes=len(said), outside=said.outside, missing=missing)
            self.keys.update(said.unread if gold.names and len(self.keys) < MOST_ROWS else {})
        golds: list[Box] = [gold] if isinstance(gold, tuple) else gold.boxes
        if len(self.answers) >= MOST_ROWS or not golds:
            return
        points = answer.placed(points=True) if task.has_points else None
        boxes = points.boxes if points else written_boxes(answer.text or "") * (not task.has_points)
        if not (boxes := [box for box in boxes if box]):
            return
        form, size = row.get("frame") or "norm1000", _size_of(row)
        if form not in FORMATS or not (row.get("frame") or 1 < max(map(max, golds)) <= 1000):
            return
        unit = "norm1000" if FORMATS[form].y_first else form
        if unit == "pixels":
            x, y = size or NOWHERE
            sizes = {"": (x, y)}
        else:
            x = y = float(UNITS[unit])
            sizes = {"": size, **sizes_in_pixels(*size)} if size else {}
        shares = tuple((x1 / x, y1 / y, x2 / x, y2 / y) for x1, y1, x2, y2 in golds)
        rows = self.points if task.has_points else self.answers
        rows.append(Answer(boxes, shares, Reading("xyxy", unit), sizes))

    def unread(self, *, ranked: bool, least: float = 0.0) -> dict[str, str]:
        """Return what boxes say and nobody reads, or do not say, where it is over a share of them:
        texts by codes. ``ranked``: confidences count.
        """
        total, (key, named) = self.said["boxes"], max(self.keys.most_common(1), default=("", 0))
        told = {
            "outside": (
                self.said["outside"],
                "confidences are outside 0 to 1: they count as missing",
            ),
            "missing": (
                self.said["missing"] * ranked,
                "boxes state no confidence: vlrft_detection_confidence pays nothing for them, and "
                "AP ranks them as 1",
            ),
            "label": (named, f"boxes hold {key[:40]!r}, which is not read: ask for label"),
        }
        return {c: f"{n} of {total} {text}" for c, (n, text) in told.items() if n > least * total}

    def problem(self) -> str | None:
        """Return one sentence, or None if the box formats agree or too little was seen."""
        if found := cause(self.answers):
            return _said(found, self.answers[0].own)
        rows = [row for row in self.answers + self.points if row.sizes.get("") != NOWHERE]
        total = sum(len(row.boxes) for row in rows)
        number = sum(
            len(leaving([(box, row.sizes.get("", (1000.0, 1000.0))) for box in row.boxes], row.own))
            for row in rows
        )
        if total < ENOUGH or number * 2 <= total:
            return None
        return (
            f"the predictions are in another box format than the gold: {number} of {total} boxes "
            "do not fit their images in it. Use SET:native for the box format that the model was "
            "trained on"
        )


def _said(found: Cause, own: Reading) -> str:
    """A cause in words, and what to do."""
    what, (order, unit) = str(found.reading), found.reading
    if unit == "pixels":
        (width, height), *others = found.sizes
        what += " of each image" if others else f" of {width:.0f} x {height:.0f}"
        what += f", as {found.name} sees the image" if found.name else ""
    advice = [f"use SET:{unit}" if unit in FORMATS else "use SET:native"] * (unit != own.unit)
    if order != "xyxy":
        advice += [ASK + YX1000 * (found.reading == Reading("yxyx", "norm1000"))]
    return (
        f"{found.matched} of {found.total} misplaced boxes match if read as {what}: "
        f"{', and '.join(advice)}"
    )


def _size_of(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the width and height that the row states, else those of its one image."""
    width, height = row.get("width"), row.get("height")
    if isinstance(width, (int, float)) and isinstance(height, (int, float)):
        return (float(width), float(height)) if width > 0 < height else None
    try:
        size = image_size(image_of(row.get("image") or row.get("images"), Path(), None))
    except ValueError:
        return None
    return float(size.width), float(size.height)
