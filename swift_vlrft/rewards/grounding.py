"""Grounding: point out the one thing that a phrase means.

    "Where is the left dog?"  completion <think>..</think><answer>[110, 100, 300, 300]</answer>
                              solution   <answer>(100,100),(300,300)</answer>

    vlrft_grounding_iou 0.95, vlrft_grounding_giou 0.975, vlrft_grounding_acc50 1.0

Every box given divides the score, so boxes beside the right one cost. Labels are not read.
"""

from functools import lru_cache
from typing import Any

from swift_vlrft.geometry.boxes import EPSILON, giou, iou
from swift_vlrft.parsing.answers import Answer, Box, boxes_or_refusal, gold_text
from swift_vlrft.rewards.contract import Scores, Task, score_rows


@lru_cache(maxsize=8192)
def read_gold(solution: str) -> Box | None:
    """The one gold box; None where the text holds none, several, or an invalid one."""
    boxes = boxes_or_refusal(gold_text(solution))
    return boxes.boxes[0] if boxes is not None and len(boxes) == 1 else None


GROUNDING = Task("grounding", read_gold, "exactly one box")


def vlrft_grounding_iou(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """IoU of the best box / number of boxes given."""
    return score_rows("vlrft_grounding_iou", GROUNDING, completions, solution, columns, _iou)


def vlrft_grounding_giou(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """(1 + GIoU) / 2 / number of boxes given; 0 for an invalid box. Source: Visual-RFT's LISA
    reward.

    Of several boxes, the one with the largest IoU is scored; where none overlaps the gold box, the
    worst one, so that a second guess at the distance never pays.
    """
    return score_rows("vlrft_grounding_giou", GROUNDING, completions, solution, columns, _giou)


def vlrft_grounding_acc50(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """1 where exactly one box is given and its IoU is >= 0.5; else 0. Source: RefCOCO's
    accuracy.
    """
    return score_rows("vlrft_grounding_acc50", GROUNDING, completions, solution, columns, _acc50)


def overlaps(answer: Answer, gold: Box) -> list[float]:
    """IoU of every box given, 0 for an invalid one; empty where the answer holds no box."""
    given = answer.boxes.boxes if answer.boxes is not None else []
    return [iou(box, gold) if box is not None else 0.0 for box in given]


def _iou(answer: Answer, gold: Box) -> float:
    found = overlaps(answer, gold)
    return max(found) / len(found) if found else 0.0


def _giou(answer: Answer, gold: Box) -> float:
    found = overlaps(answer, gold)
    if not found or answer.boxes is None:
        return 0.0
    values = [0.0 if box is None else (1.0 + giou(box, gold)) / 2.0 for box in answer.boxes.boxes]
    best = max(found)
    value = (
        max(v for v, overlap in zip(values, found, strict=True) if overlap == best)
        if best
        else min(values)
    )
    return value / len(found)


def _acc50(answer: Answer, gold: Box) -> float:
    found = overlaps(answer, gold)
    return 1.0 if len(found) == 1 and found[0] >= 0.5 - EPSILON else 0.0
