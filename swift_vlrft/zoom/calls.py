"""Read the call of the tool in a model's turn: look closer at a part of a picture.

<think>Too small.</think><tool_call>{"name": "image_zoom_in_tool",
"arguments": {"bbox_2d": [10, 20, 60, 80], "label": "the sign", "img_idx": 0}}</tool_call>

Name and arguments are those of Qwen's cookbook. The box is read as any other, in the box format of
the row; ``img_idx`` counts the row's pictures from 0, and is 0 where it is left out.
"""

import re
from typing import Any, NamedTuple

from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import think_block
from swift_vlrft.parsing.boxes import arguments, read_boxes
from swift_vlrft.parsing.literals import literal

TOOL = "image_zoom_in_tool"
OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALL = 2_000
"""Characters of a call: a longer one is not read."""


class Call(NamedTuple):
    """A call of the tool; ``box`` is x1, y1, x2, y2 in the row's box format."""

    box: Box
    picture: int = 0


def read_call(text: str) -> Call | str | None:
    """Return the call after the reasoning; why it is not readable; None where there is no call."""
    after = text[max(text.rfind("</think>"), 0) :]
    calls = after.count(OPEN)
    if not calls:
        return None
    if calls > 1:
        return "One call a turn, please."
    inner, closed, _ = after.partition(OPEN)[2].partition(CLOSE)
    if not closed or len(inner) > MAX_CALL:
        return f"The call is not closed by {CLOSE}."
    stated = literal(inner.strip())
    of_call = arguments(stated) if isinstance(stated, dict) and "arguments" in stated else None
    if of_call is None or stated.get("name") != TOOL:
        return f'The call is no JSON object with the name "{TOOL}" and arguments.'
    boxes = read_boxes(inner.strip())
    if boxes is None or len(boxes) != 1 or boxes.boxes[0] is None:
        return "The call needs one box as bbox_2d: four numbers, with an area."
    picture: Any = of_call.get("img_idx", 0)
    if type(picture) is not int or picture < 0:
        return "img_idx is the number of a picture, from 0 on."
    return Call(boxes.boxes[0], picture)


def calls_only(text: str) -> bool:
    """Return whether the turn is one non-empty think block and one call that can be read."""
    reasoned, rest = think_block(text)
    return reasoned and _ONE.fullmatch(rest) is not None and isinstance(read_call(text), Call)


_ONE = re.compile(rf"{OPEN}[^<]*+{CLOSE}\s*+")
