"""A list of boxes as it was read: predictions of one completion, or the gold boxes of a row.

[{'Position': [254, 303, 291, 365], 'Confidence': 0.9, 'label': 'Dog'}, {'Position': [9, 9, 1, 1]}]

boxes [(254, 303, 291, 365), None]    confidences [0.9, None]    labels ["dog", None]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from swift_vlrft.geometry.boxes import Box, array_of

if TYPE_CHECKING:
    from swift_vlrft.geometry.boxes import Array

MAX_COORDINATE = 10**9
"""Coordinates beyond it are invalid: their areas would no longer be exact. An int, since most
coordinates are, and Python compares those with a float slowly.
"""


@dataclass(eq=False)
class BoxList:
    """Predictions or gold boxes in the order of the text, as parallel lists.

    ``boxes`` holds xyxy numbers, x right and y down, in whatever frame the text uses; ``None`` is
    an invalid box (not four finite numbers, inverted, or without area): it matches nothing and
    still counts. ``confidences`` holds what was stated in [0, 1], else ``None``; ``labels`` the
    normalised label, ``None`` where none is given.
    """

    boxes: list[Box | None] = field(default_factory=list)
    confidences: list[float | None] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.boxes)

    @cached_property
    def array(self) -> Array:
        """The boxes as an array; a list must not grow after it is asked for."""
        return array_of(self.boxes)

    @cached_property
    def names(self) -> frozenset[str]:
        """The distinct labels; as ``array``, not to be asked for before the list is complete."""
        return frozenset(label for label in self.labels if label is not None)

    def add(
        self, box: Box | None, confidence: float | None = None, label: str | None = None
    ) -> None:
        self.boxes.append(box)
        self.confidences.append(confidence)
        self.labels.append(label)


def valid_box(x1: float, y1: float, x2: float, y2: float) -> Box | None:
    """The box, or None where it is inverted, without area, or beyond MAX_COORDINATE."""
    # Comparisons with NaN are false, so it is refused here as well.
    if (
        -MAX_COORDINATE < x1 < x2 < MAX_COORDINATE
        and -MAX_COORDINATE < y1 < y2 < MAX_COORDINATE
        and (x2 - x1) * (y2 - y1) > 0
    ):
        return x1, y1, x2, y2
    return None
