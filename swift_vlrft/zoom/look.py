"""Carry out a call: the crop that it asks for, or the line that says why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from swift_vlrft.zoom.calls import Call
from swift_vlrft.zoom.crops import Resize, cut, shown, thousandths

REPLY = "<tool_response>\n{}\n</tool_response>"
PICTURE = REPLY.format("<image>")


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
    crop = [round(side) for side in thousandths(part, picture.size)]
    if any(turn["crop"] == crop and turn["picture"] == call.picture for turn in turns):
        return "You have seen this part."
    return crop, shown(picture, part)
