"""Visual-RFT's released detection rewards, for people who reproduce the paper.

    completion  <answer>[{'Position': [900, 900, 950, 950], 'Confidence': 0.2}]</answer>
    solution    <answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>

    vlrft_paper_iou 0.0, vlrft_paper_confidence 0.8: a miss stated with doubt is paid, with no
    recall term, so these two can be gamed; ``vlrft_detection_iou`` and ``_confidence`` cannot.

The formulas are those of Visual-RFT at 94866331 (arXiv 2503.01785); text is read as every other
reward reads it, and no math parser stands in front of the boxes.
"""

from math import fsum
from typing import Any

from swift_vlrft.geometry.boxes import iou
from swift_vlrft.parsing.answers import Answer, BoxList
from swift_vlrft.rewards.contract import Scores, score_rows
from swift_vlrft.rewards.matching import DETECTION


def vlrft_paper_iou(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """Sum of IoU > 0.5, taken greedily by confidence / max(n_pred, n_gold), repeats of a position
    dropped.
    """
    return score_rows("vlrft_paper_iou", DETECTION, completions, solution, columns, _paper_iou)


def vlrft_paper_confidence(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """Mean over predictions of c where matched, 1 - c where not, clipped to [0, 1].

    A prediction without a usable confidence contributes 0.
    """
    return score_rows(
        "vlrft_paper_confidence", DETECTION, completions, solution, columns, _paper_confidence
    )


def _paper_iou(answer: Answer, gold: BoxList) -> float:
    if (empty := _empty_score(answer, gold)) is not None:
        return empty
    results = _greedy(answer.boxes or BoxList(), gold)
    return min(1.0, fsum(overlap for overlap, _ in results) / max(len(results), len(gold)))


def _paper_confidence(answer: Answer, gold: BoxList) -> float:
    if (empty := _empty_score(answer, gold)) is not None:
        return empty
    results = _greedy(answer.boxes or BoxList(), gold)
    earned = [(c if overlap else 1.0 - c) for overlap, c in results if c is not None]
    return min(1.0, max(0.0, fsum(earned) / len(results)))


def _empty_score(answer: Answer, gold: BoxList) -> float | None:
    if answer.boxes is None:
        return 0.0
    if answer.boxes.boxes and gold.boxes:
        return None
    return 0.0 if answer.boxes.boxes or gold.boxes else 1.0


def _greedy(predicted: BoxList, gold: BoxList) -> list[tuple[float, float | None]]:
    """(IoU or 0, confidence) of each distinct prediction, most confident first, each taking its
    best free gold box.
    """
    seen = set()
    distinct = []
    for i, box in enumerate(predicted.boxes):
        if box is None or box not in seen:
            seen.add(box)
            distinct.append(i)
    distinct.sort(
        key=lambda i: -1.0 if (c := predicted.confidences[i]) is None else c, reverse=True
    )
    free = list(range(len(gold)))
    results = []
    for i in distinct:
        box = predicted.boxes[i]
        best, best_j = 0.0, -1
        if box is not None:
            for j in free:
                gold_box = gold.boxes[j]
                overlap = iou(box, gold_box) if gold_box is not None else 0.0
                if overlap > best:
                    best, best_j = overlap, j
        if best > 0.5:
            free.remove(best_j)
        results.append((best if best > 0.5 else 0.0, predicted.confidences[i]))
    return results
