"""Boxes in thousandths of the image or in pixels, and conversion between the two.

    convert_box((254, 303, 291, 365), "norm1000", "pixels", size=(644, 476)) (164, 144, 187, 174)

``norm1000`` counts thousandths of the image's width and height, ``pixels`` those of the image as
the model sees it, after the resize.
"""

from __future__ import annotations

import math

BOX_FORMATS = ("norm1000", "pixels")

Size = tuple[int, int]
"""Width, height."""

NORM1000: Size = (1000, 1000)


def convert_box(
    box: tuple[float, float, float, float],
    from_format: str,
    to_format: str,
    *,
    size: Size,
    to_size: Size | None = None,
) -> tuple[int, int, int, int]:
    """``box`` in whole numbers of another format, kept inside the image and never without area.

    ``size`` is the width and height that pixels refer to; ``to_size`` those of the result, if they
    differ (the original and the resized image). A round trip is within one pixel, for sides up to
    2000.
    """
    for name in (from_format, to_format):
        if name not in BOX_FORMATS:
            raise ValueError(f"unknown box format {name!r}; known: {', '.join(BOX_FORMATS)}")
    before = NORM1000 if from_format == "norm1000" else size
    after = NORM1000 if to_format == "norm1000" else to_size or size
    x1, x2 = _rounded(box[0] * after[0] / before[0], box[2] * after[0] / before[0], after[0])
    y1, y2 = _rounded(box[1] * after[1] / before[1], box[3] * after[1] / before[1], after[1])
    return x1, y1, x2, y2


def _rounded(start: float, end: float, limit: int) -> tuple[int, int]:
    first, last = (min(max(math.floor(side + 0.5), 0), limit) for side in (start, end))
    if last <= first and start < end:  # a thin box: widen it by one, inside the image
        first = min(max(math.floor((start + end) / 2), 0), limit - 1)
        last = first + 1
    return first, last
