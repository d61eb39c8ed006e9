"""Detection, scored as COCO scores a detector: ranking by confidence counts.

completion  <answer>[{'Position': [254, 303, 291, 365], 'Confidence': 0.4},
                     {'Position': [900, 900, 950, 950], 'Confidence': 0.9}]</answer>
solution    <answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>

vlrft_detection_map50  0.25: precision 1/2 at every recall, x 1 gold box / 2 predictions
"""

from collections.abc import Sequence
from functools import partial
from math import fsum
from typing import Any

from swift_vlrft.answers import BoxList
from swift_vlrft.boxes import EPSILON, Pair, average_precision
from swift_vlrft.rewards.contract import Scores, score_rows
from swift_vlrft.rewards.matching import DETECTION, same_label_pairs, score_boxes

COCO_THRESHOLDS = tuple(0.5 + 0.05 * n for n in range(10))


def vlrft_detection_map(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """COCO AP (IoU 0.5 to 0.95) averaged over gold labels, x min(1, n_gold / n_pred).

    Predictions rank by confidence, false positives first among equals. A confidence that is missing
    or outside [0, 1] ranks as 1. Source: COCO; the length factor is VLM-R1's odLength.
    """
    score = partial(score_boxes, formula=partial(_mean_ap, thresholds=COCO_THRESHOLDS))
    return score_rows("vlrft_detection_map", DETECTION, completions, solution, columns, score)


def vlrft_detection_map50(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """``vlrft_detection_map`` at the one threshold 0.5."""
    score = partial(score_boxes, formula=partial(_mean_ap, thresholds=COCO_THRESHOLDS[:1]))
    return score_rows("vlrft_detection_map50", DETECTION, completions, solution, columns, score)


def _mean_ap(
    predicted: BoxList, gold: BoxList, matched: list[Pair], thresholds: Sequence[float]
) -> float:
    found: dict[int, list[tuple[float, int]]] = {}  # prediction -> its gold boxes, best first
    for i, j, iou in same_label_pairs(predicted, gold, thresholds[0]):
        found.setdefault(i, []).append((iou, j))
    for overlaps in found.values():
        overlaps.sort(reverse=True)
    confidences = [1.0 if c is None else c for c in predicted.confidences]
    order = sorted(
        range(len(predicted)),
        key=lambda i: (
            -confidences[i],
            -found[i][0][0] if i in found else 0.0,
            predicted.boxes[i] or (),
        ),
    )
    values = []
    for label in set(gold.labels):
        n_gold = gold.labels.count(label)
        ranked = [i for i in order if _is_of(predicted.labels[i], label, gold)]
        for threshold in thresholds:
            hits = _hits(ranked, found, label, gold, threshold)
            # False positives first among equals: order by confidence, then miss before hit.
            best_first = sorted(
                zip(ranked, hits, strict=True), key=lambda r: (-confidences[r[0]], r[1])
            )
            values.append(average_precision([hit for _, hit in best_first], n_gold))
    return fsum(values) / len(values) * min(1.0, len(gold) / len(predicted))


def _is_of(predicted_label: str | None, label: str | None, gold: BoxList) -> bool:
    """Whether a prediction is ranked among those for ``label``."""
    if label is None:  # gold boxes without a label: for whatever is not claimed by a stated one
        return predicted_label is None or predicted_label not in gold.names
    return predicted_label == label or (predicted_label is None and len(gold.names) == 1)


def _hits(
    ranked: list[int],
    found: dict[int, list[tuple[float, int]]],
    label: str | None,
    gold: BoxList,
    threshold: float,
) -> list[bool]:
    """For each prediction, best first, whether it takes a gold box of ``label`` that is still
    free.
    """
    least = threshold - EPSILON
    free = {j for j, name in enumerate(gold.labels) if name == label}
    hits = []
    for i in ranked if free else ():
        own = None
        for iou, j in found.get(i, ()):
            if iou < least:
                break
            if j in free:
                own = j
                break
        hits.append(own is not None)
        if own is not None:
            free.remove(own)
            if not free:
                break
    return hits + [False] * (len(ranked) - len(hits))
