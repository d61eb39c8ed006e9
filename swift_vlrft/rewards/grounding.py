"""Score grounding: locate the one object that a phrase refers to, or nothing, as in gRefCOCO.

Extra boxes cost. Labels are not read.
"""

from collections.abc import Callable

from swift_vlrft.geometry.boxes import EPSILON, giou, iou
from swift_vlrft.parsing.answers import Box, BoxList, read_boxes
from swift_vlrft.rewards.contract import BOX, Task, compares, reward


def read_target(text: str) -> Box | BoxList | None:
    """Return the gold box, or an empty list for "No Objects"; None for several or invalid boxes."""
    boxes = read_boxes(text)
    if boxes is None or len(boxes) > 1:
        return None
    return boxes.boxes[0] if len(boxes) else boxes


GROUNDING = Task(
    "grounding",
    read_target,
    "exactly one box or 'No Objects'",
    has_boxes=True,
    asks_also=BOX,
    headline="acc50",
    hub_category="object-detection",
)


@reward(GROUNDING)
@compares("boxes")
def vlrft_grounding_iou(predicted: BoxList, gold: Box) -> float:
    """IoU of the best box / number of boxes given; without a target 1 for "No Objects", else 0.
    Source: VLM-R1's reward of referring expressions, which takes the first box.

    >>> vlrft_grounding_iou(["<answer>[110, 100, 300, 300]</answer>"], ["(100,100),(300,300)"])
    [0.95]
    """
    ious = overlaps(predicted, gold)
    return max(ious) / len(ious)


@reward(GROUNDING)
@compares("boxes")
def vlrft_grounding_giou(predicted: BoxList, gold: Box) -> float:
    """max(0, GIoU) of the best box / number of boxes given; 0 for an invalid box. Without a target
    1 for "No Objects", else 0. Source: Visual-RFT's LISA reward, whose form (1 + GIoU) / 2
    pays half a point for the whole picture on every row.

    >>> vlrft_grounding_giou(["<answer>[0, 0, 2, 4]</answer>"] * 2, ["[0, 0, 4, 4]", "No Objects"])
    [0.5, 0.0]
    """
    return max(0.0, *overlaps(predicted, gold, giou)) / len(predicted)


@reward(GROUNDING)
@compares("boxes")
def vlrft_grounding_acc50(predicted: BoxList, gold: Box) -> float:
    """1 if exactly one box is given and its IoU is >= 0.5; without a target 1 for "No Objects";
    else 0. Source: RefCOCO's accuracy.

    >>> vlrft_grounding_acc50(["<answer>[0, 0, 5, 10]</answer>"], ["[0, 0, 10, 10]"])
    [1.0]
    """
    ious = overlaps(predicted, gold)
    return 1.0 if len(ious) == 1 and ious[0] >= 0.5 - EPSILON else 0.0


def overlaps(
    predicted: BoxList, gold: Box, overlap: Callable[[Box, Box], float] = iou
) -> list[float]:
    """Return the IoU, or another ``overlap``, of every box given, 0 for an invalid box."""
    return [overlap(box, gold) if box is not None else 0.0 for box in predicted.boxes]
