"""Score looking closer, in runs of several turns (--multi_turn_scheduler vlrft_zoom).

"Which digit is on the sign?"   zoom_box [400, 420, 440, 460]
turns       [{"text": "<think>..</think><tool_call>..</tool_call>", "crop": [390, 410, 450, 470]}]
completion  <think>..</think><answer>7</answer>

The column ``zoom_box`` is a row's box to look at, in thousandths of width and height; a row without
one has nothing to find, and a call earns nothing there. ``turns`` are those before the completion,
as the scheduler hands them on; all other rewards score the completion, which is the last turn.
"""

from collections.abc import Mapping
from typing import Any

from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.geometry.boxes import Box, area, shared_area
from swift_vlrft.parsing.answers import Answer, gold_text, read_boxes
from swift_vlrft.parsing.turns import earlier_turns
from swift_vlrft.rewards.contract import reward
from swift_vlrft.zoom.calls import calls_only

FREE_AREA = 4
"""The area of a crop that costs nothing, in areas of the gold box."""
NO_CROP = "no crop, or a crop that shows little of zoom_box or much beside it"
NO_CALL = "an earlier turn is not one think block and one call with a crop"


def one_box(value: Any) -> Box | None:
    """Return a box given as a list or as text; None where it is missing or cannot be read."""
    boxes = read_boxes(gold_text(value))
    return boxes.boxes[0] if boxes is not None and len(boxes) == 1 else None


def problem_of(columns: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a row's box to look at, if it has one."""
    text, frame = gold_text(columns.get("zoom_box")), columns.get("frame")
    if text in ("", "[]"):
        return None
    box = one_box(text)
    if box is None or min(box) < 0 or not 1 < max(box) <= 1000:
        wanted = "one box [x1, y1, x2, y2] in thousandths of width and height"
        return f"the zoom_box {text[:80]!r} is not {wanted}"
    if frame not in (None, *FORMATS):  # in which the boxes of calls are read
        return f"unknown frame {frame!r}; known: {', '.join(FORMATS)}"
    return None


@reward(
    needs=(), takes=("zoom_box", "turns"), asks=(), recommended=False,
    reason=("low_cover", NO_CROP), problem_of=problem_of, zero_without="zoom_box",
)  # fmt: skip
def vlrft_zoom_cover(answer: Answer, zoom_box: Any = None, turns: Any = None) -> float:
    """Share of ``zoom_box`` that the last crop covers, lowered for a crop that is too large.

    share x min(1, 4 x the box's area / the crop's); 0 without a crop, and for a row without a box
    to look at. Source: ours.

    >>> looked = [{"text": "...", "crop": [390, 410, 450, 470]}]
    >>> vlrft_zoom_cover(["<answer>7</answer>"], zoom_box=[[400, 420, 440, 460]], turns=[looked])
    [1.0]
    """
    crops = [crop for turn in earlier_turns(turns) if (crop := one_box(turn.get("crop")))]
    gold = one_box(zoom_box)
    if not crops or gold is None:
        return 0.0
    share = min(1.0, shared_area(crops[-1], gold) / area(gold))
    return share * min(1.0, FREE_AREA * area(gold) / area(crops[-1]))


@reward(
    needs=(), takes=("turns",), scores_format=True, recommended=False,
    reason=("bad_format", NO_CALL),
)  # fmt: skip
def vlrft_tool_format(answer: Answer, turns: Any = None) -> float:
    """1 if every turn is well-formed and every call was carried out, else 0.

    Each turn before the last is one think block and one call; the last one is a think block and an
    answer block. An answer without a call earns as much. Source: DeepEyes, without its bonus for
    calling.

    >>> vlrft_tool_format(["<think>t</think><answer>7</answer>"])
    [1.0]
    """
    carried_out = all(
        turn.get("crop") is not None and calls_only(turn["text"]) for turn in earlier_turns(turns)
    )
    return 1.0 if carried_out and answer.well_formed else 0.0
