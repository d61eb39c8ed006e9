"""Score looking closer, in runs of several turns (--multi_turn_scheduler vlrft_zoom).

"Which digit is on the sign?"   zoom_box [400, 420, 440, 460]
turns       [{"text": "<think>..</think><tool_call>..</tool_call>", "crop": [390, 410, 450, 470]}]
completion  <think>..</think><answer>7</answer>                              vlrft_zoom_cover 1.0

The column ``zoom_box`` is a row's box to look at, in thousandths of width and height; a row without
one has nothing to find, and a call earns nothing there. ``turns`` are those before the completion,
as the scheduler hands them on; all other rewards score the completion, which is the last turn.
"""

from typing import Any

from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import Answer, gold_text, plain, read_boxes
from swift_vlrft.parsing.calls import calls_only
from swift_vlrft.rewards.contract import reward

ZOOM_BOX = "zoom_box"
WIDER = 4
"""Times the gold box's area: a crop up to it costs nothing."""


@reward(needs=(), takes=("zoom_box", "turns"), recommended=False)
def vlrft_zoom_cover(answer: Answer, zoom_box: Any = None, turns: Any = None) -> float:
    """The share of the box to look at that the last crop covers x min(1, 4 x the box's area / the
    crop's); 0 without a crop, and for a row without a box to look at.
    """
    crops = [crop for turn in turns_of(turns) if (crop := one_box(turn.get("crop"))) is not None]
    gold = one_box(zoom_box)
    return cover(crops[-1], gold) if crops and gold is not None else 0.0


@reward(needs=(), takes=("turns",), scores_format=True, recommended=False)
def vlrft_tool_format(answer: Answer, turns: Any = None) -> float:
    """1 if every turn before the last is one think block and one call that was carried out, and the
    last one is a think block and an answer block; else 0. An answer without a call earns as much.
    """
    carried_out = all(
        turn.get("crop") is not None and calls_only(turn["text"]) for turn in turns_of(turns)
    )
    return 1.0 if carried_out and answer.well_formed else 0.0


def turns_of(turns: Any) -> list[dict[str, Any]]:
    """Return the turns of a row; turns of another form, from another program, are left out."""
    turns = plain(turns)
    listed = turns if isinstance(turns, (list, tuple)) else []
    return [turn for turn in listed if isinstance(turn, dict) and isinstance(turn.get("text"), str)]


def one_box(value: Any) -> Box | None:
    """Return a box given as a list or as text; None where it is missing or cannot be read."""
    text = gold_text(value)
    boxes = read_boxes(text) if text else None
    return boxes.boxes[0] if boxes is not None and len(boxes) == 1 else None


def is_zoom_box(value: Any) -> bool:
    """Return whether a value of ``zoom_box`` is one box with an area inside the picture."""
    box = one_box(value)
    return box is not None and min(box) >= 0 and 1 < max(box) <= 1000


def cover(crop: Box, gold: Box) -> float:
    """Return how well ``crop`` shows ``gold``: both in the same box format."""
    width = min(crop[2], gold[2]) - max(crop[0], gold[0])
    height = min(crop[3], gold[3]) - max(crop[1], gold[1])
    if width <= 0 or height <= 0:
        return 0.0
    of_gold = (gold[2] - gold[0]) * (gold[3] - gold[1])
    of_crop = (crop[2] - crop[0]) * (crop[3] - crop[1])
    return min(1.0, width * height / of_gold) * min(1.0, WIDER * of_gold / of_crop)
