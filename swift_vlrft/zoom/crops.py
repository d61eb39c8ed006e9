"""Carry out a call: cut the part of a picture that it asks for, or say why there is none.

cut((100, 500, 900, 501), (1000, 1000), "norm1000")    (20, 450, 980, 551)
"""

import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from swift_vlrft.geometry.box_format import FORMATS, Corners, Size
from swift_vlrft.zoom.calls import Call

MARGIN = 0.1
"""The margin around a box, in sides of the box."""
MAX_RATIO = 8
"""The largest ratio of a crop's sides, where the picture is wide enough."""
MIN_CROP = 256 * 28 * 28
"""Pixels that a smaller crop is enlarged to, within MAX_PIXELS."""
MAX_CROP = 1280 * 28 * 28
"""Pixels of a crop where MAX_PIXELS says nothing."""

Part = tuple[int, int, int, int]
"""Corners in pixels of the stored picture."""
Resize = Callable[[int, int], Size]
"""The size in which the model sees a picture."""

REPLY = "<tool_response>\n{}\n</tool_response>"


def look(
    call: Call | str | None,
    pictures: Sequence[Any],
    turns: Sequence[Mapping[str, Any]],
    frame: str,
    resize: Resize | None,
    opened: Callable[[Any], Image.Image],
) -> tuple[list[int], bytes] | str:
    """Return the crop in thousandths and its picture; or why there is none.

    ``pictures`` are the row's, ``turns`` those before, and ``frame`` is the format of the box.
    """
    if not isinstance(call, Call):
        return call or "There is no call."
    if call.picture >= len(pictures):
        last = f"; the last one is {len(pictures) - 1}" if pictures else ""
        return f"There is no picture {str(call.picture)[:9]}{last}."
    picture = opened(pictures[call.picture])
    part = cut(call.box, picture.size, frame, resize)
    if part is None:
        return "The box leaves the picture."
    crop = [round(1000 * x / side) for x, side in zip(part, picture.size * 2, strict=True)]
    if any(turn["crop"] == crop and turn["picture"] == call.picture for turn in turns):
        return "You have seen this part."
    return crop, shown(picture, part)


def cut(box: Corners, size: Size, frame: str, resize: Resize | None = None) -> Part | None:
    """Return the part of a picture to show for ``box``, with a margin, and not too narrow.

    None for a box that leaves the picture.
    """
    box_format = FORMATS[frame]
    seen = resize(*size) if box_format.scale is None and resize is not None else size
    edges = box_format.edges(seen)
    sides = []
    for first, last, edge, side in zip(box[:2], box[2:], edges, size, strict=True):
        if first < 0 or last > edge:
            return None
        sides.append((first * side / edge, last * side / edge))
    longest = max(last - first for first, last in sides)
    corners = []
    for (first, last), side in zip(sides, size, strict=True):
        half = max((last - first) * (0.5 + MARGIN), longest / MAX_RATIO / 2, 0.5)
        middle = (first + last) / 2
        corners.append((max(0, math.floor(middle - half)), min(side, math.ceil(middle + half))))
    (x1, x2), (y1, y2) = corners
    return x1, y1, x2, y2


def shown(picture: Image.Image, part: Part) -> bytes:
    """Return the part as a PNG within MAX_PIXELS; a small one enlarged, or a patch swallows it."""
    crop, limit = picture.crop(part), os.environ.get("MAX_PIXELS", "")
    most = int(limit) if limit.isdecimal() and int(limit) else MAX_CROP
    area = crop.width * crop.height
    scale = math.sqrt(min(max(area, min(MIN_CROP, most)), most) / area)
    width, height = (max(1, int(side * scale)) for side in crop.size)
    return as_png(crop.resize((width, height), Image.Resampling.BICUBIC))


def as_png(image: Image.Image) -> bytes:
    """Return an image as the bytes of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
