"""Score detection by Visual-RFT's released rewards, to reproduce the paper.

A miss at low confidence is rewarded, without a recall term, so these can be gamed;
``vlrft_detection_iou`` and ``_confidence`` cannot. The formulas are those of Visual-RFT at 94866331
(arXiv 2503.01785); text is read as by every other reward, without its math parser in front.
"""

from math import fsum

from swift_vlrft.geometry.assignment import greedy
from swift_vlrft.parsing.answers import BoxList
from swift_vlrft.rewards.contract import CONFIDENCE, compares, reward
from swift_vlrft.rewards.matching import DETECTION, overlap_table


@reward(DETECTION, recommended=False)
@compares("boxes")
def vlrft_paper_iou(predicted: BoxList, gold: BoxList) -> float:
    """Sum of IoU > 0.5, greedily by confidence, repeats dropped, / max(n_pred, n_gold).
    Source: Visual-RFT at 94866331.

    >>> vlrft_paper_iou(["<answer>[[0, 0, 8, 10], [0, 0, 8, 10]]</answer>"], ["[0, 0, 10, 10]"])
    [0.8]
    """
    results = _greedy(predicted, gold)
    return min(1.0, fsum(overlap for overlap, _ in results) / max(len(results), len(gold)))


@reward(DETECTION, reads_confidence=True, asks=(*DETECTION.asks, CONFIDENCE), recommended=False)
@compares("boxes")
def vlrft_paper_confidence(predicted: BoxList, gold: BoxList) -> float:
    """Mean over predictions of c if matched, 1 - c if not, clipped to [0, 1].

    A prediction without a usable confidence contributes 0. Source: Visual-RFT at 94866331.

    >>> miss = "<answer>[{'Position': [50, 50, 60, 60], 'Confidence': 0.25}]</answer>"
    >>> vlrft_paper_confidence([miss], ["[0, 0, 9, 9]"])
    [0.75]
    """
    results = _greedy(predicted, gold)
    earned = [(c if overlap else 1.0 - c) for overlap, c in results if c is not None]
    return min(1.0, max(0.0, fsum(earned) / len(results)))


def _greedy(predicted: BoxList, gold: BoxList) -> list[tuple[float, float | None]]:
    """Yield (IoU or 0, confidence) of each distinct prediction, most confident first.

    Each takes its best free gold box. Labels are not read.
    """
    confidences = predicted.confidences
    seen: dict[object, int] = {}
    for i, box in enumerate(predicted.boxes):
        seen.setdefault(box or i, i)
    order = sorted(
        seen.values(), key=lambda i: -1.0 if (c := confidences[i]) is None else c, reverse=True
    )
    table = overlap_table(predicted, BoxList(gold.boxes), 0.5)[order]
    taken = greedy(table * (table > 0.5))
    return [(overlap, confidences[i]) for i, overlap in zip(order, taken, strict=True)]
