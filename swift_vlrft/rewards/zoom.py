"""Score looking closer, in runs of several turns (--multi_turn_scheduler vlrft_zoom).

"Which digit is on the sign?"   zoom_box [400, 420, 440, 460]
turns       [{"text": "<think>..</think><tool_call>..</tool_call>", "crop": [390, 410, 450, 470]}]
completion  <think>..</think><answer>7</answer>

The column ``zoom_box`` is a row's box to look at, in thousandths of width and height; a row without
one has nothing to find, and a call earns nothing there. ``turns`` are those before the completion,
as the scheduler hands them on; all other rewards score the completion, which is the last turn.
"""

from typing import Any

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.turns import earlier_turns
from swift_vlrft.rewards.contract import reward
from swift_vlrft.zoom.calls import calls_only
from swift_vlrft.zoom.cover import ZOOM_BOX, cover, one_box, problem_of

NO_CROP = "no crop, or a crop that shows little of zoom_box or much beside it"
NO_CALL = "an earlier turn is not one think block and one call with a crop"


@reward(
    needs=(), takes=(ZOOM_BOX, "turns"), asks=(), recommended=False,
    reason=("low_cover", NO_CROP), problem_of=problem_of, zero_without=ZOOM_BOX,
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
    return cover(crops[-1], gold) if crops and gold is not None else 0.0


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
