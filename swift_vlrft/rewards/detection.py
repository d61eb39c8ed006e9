"""Detection: find every object, say how sure you are.

    image 640 x 480, frame norm1000, "Detect all objects belonging to the category 'dog'."
    completion  <think>One.</think>
                <answer>[{'Position': [255, 304, 291, 365], 'Confidence': 0.9}]</answer>
    solution    <answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>

    vlrft_detection_iou 0.957, vlrft_detection_confidence 0.99, vlrft_detection_f1 1.0

Predictions and gold boxes are matched one to one (the largest summed IoU over pairs with IoU >= 0.5
and agreeing labels). An invalid box and an exact repeat count as predictions. Where both sides are
empty the score is 1, where one is, 0; text that is neither a list nor a refusal scores 0.
"""

from functools import partial
from math import fsum
from typing import Any

from swift_vlrft.geometry.boxes import Pair
from swift_vlrft.parsing.answers import Answer, BoxList, read
from swift_vlrft.rewards.contract import Scores, column, routing, score_rows
from swift_vlrft.rewards.matching import DETECTION, score_boxes
from swift_vlrft.rewards.schedule import threshold_at


def vlrft_detection_iou(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """Sum of the matched IoU / max(number of predictions, number of gold boxes). Source:
    Visual-RFT.
    """
    score = partial(score_boxes, formula=_iou)
    return score_rows("vlrft_detection_iou", DETECTION, completions, solution, columns, score)


def vlrft_detection_confidence(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """max(0, sum over matched of 2c - c^2, minus sum over unmatched of c^2) / max(n_pred, n_gold).

    A proper scoring rule (Brier): stating your true probability is optimal. A confidence that is
    missing or outside [0, 1] contributes 0 when matched and -1 when not. Where equal IoU leaves the
    choice between two predictions open, the one with the lower confidence is the matched one.
    """
    score = partial(score_boxes, formula=_confidence)
    return score_rows(
        "vlrft_detection_confidence", DETECTION, completions, solution, columns, score
    )


def vlrft_detection_f1(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """F1 at IoU >= 0.5: 2 matched / (n_pred + n_gold)."""
    score = partial(score_boxes, formula=_f1)
    return score_rows("vlrft_detection_f1", DETECTION, completions, solution, columns, score)


def vlrft_detection_iou_dynamic(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """``vlrft_detection_iou`` with a threshold that rises with training progress.

    0.5, from 10 % of max_steps 0.75, from 25 % 0.9; ``VLRFT_IOU_SCHEDULE=0:0.5,0.1:0.75,0.25:0.9``
    spells another one. Progress is read from ``trainer_state`` (ms-swift passes it); without it the
    run is at its start. Source: V-Triune's dynamic IoU reward.
    """
    score = partial(score_boxes, formula=_iou, threshold=threshold_at(columns.get("trainer_state")))
    return score_rows(
        "vlrft_detection_iou_dynamic", DETECTION, completions, solution, columns, score
    )


def vlrft_detection_format(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """1 where ``vlrft_format`` is 1 and the answer reads as valid boxes or as a refusal. Needs no
    solution.
    """
    texts = column("vlrft_detection_format", "completions", completions, completions, columns)
    tasks = routing("vlrft_detection_format", texts, columns)
    return [
        _format(read(text))
        if tasks is None or (tasks[row] or DETECTION.name) == DETECTION.name
        else None
        for row, text in enumerate(texts)
    ]


def _iou(predicted: BoxList, gold: BoxList, matched: list[Pair]) -> float:
    return fsum(iou for _, _, iou in matched) / max(len(predicted), len(gold))


def _confidence(predicted: BoxList, gold: BoxList, matched: list[Pair]) -> float:
    # 2c - c^2 when matched and -c^2 when not is 2c for the matched, less c^2 for all; where none is
    # stated, 0 when matched and -1 when not is 1 for the matched, less 1 for all.
    stated = predicted.confidences
    earned = fsum([1.0 if (c := stated[i]) is None else 2.0 * c for i, _, _ in matched])
    paid = fsum([1.0 if c is None else c * c for c in stated])
    return max(0.0, earned - paid) / max(len(predicted), len(gold))


def _f1(predicted: BoxList, gold: BoxList, matched: list[Pair]) -> float:
    return 2.0 * len(matched) / (len(predicted) + len(gold))


def _format(answer: Answer) -> float:
    boxes = answer.boxes
    return 1.0 if answer.well_formed and boxes is not None and None not in boxes.boxes else 0.0
