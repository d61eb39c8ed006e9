"""Detection, scored as COCO scores a detector: ranking by confidence counts.

completion  <answer>[{'Position': [254, 303, 291, 365], 'Confidence': 0.4},
                     {'Position': [900, 900, 950, 950], 'Confidence': 0.9}]</answer>
solution    <answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>

vlrft_detection_map50  0.25: precision 1/2 at every recall, x 1 gold box / 2 predictions
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import fsum
from typing import TYPE_CHECKING, Any

from swift_vlrft.geometry.boxes import EPSILON, PairArrays, Pairs, average_precision
from swift_vlrft.parsing.answers import Answer, BoxList
from swift_vlrft.rewards.contract import Scores, score_rows
from swift_vlrft.rewards.matching import DETECTION, same_label_pairs, score_without_boxes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COCO_THRESHOLDS = tuple(0.5 + 0.05 * n for n in range(10))


def vlrft_detection_map(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """COCO AP (IoU 0.5 to 0.95) averaged over gold labels, x min(1, n_gold / n_pred).

    Predictions rank by confidence, false positives first among equals. A confidence that is missing
    or outside [0, 1] ranks as 1. Source: COCO; the length factor is VLM-R1's odLength.
    """
    score = partial(_mean_ap, thresholds=COCO_THRESHOLDS)
    return score_rows("vlrft_detection_map", DETECTION, completions, solution, columns, score)


def vlrft_detection_map50(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """``vlrft_detection_map`` at the one threshold 0.5."""
    score = partial(_mean_ap, thresholds=COCO_THRESHOLDS[:1])
    return score_rows("vlrft_detection_map50", DETECTION, completions, solution, columns, score)


def _mean_ap(answer: Answer, gold: BoxList, thresholds: Sequence[float]) -> float:
    predicted = answer.boxes
    if not predicted or not gold:
        return score_without_boxes(predicted, gold)
    pairs = same_label_pairs(predicted, gold, thresholds[0])
    of_label = _hits_of_many if isinstance(pairs, PairArrays) else _hits_of_few
    best = _best_overlaps(pairs, len(predicted))
    confidences = [1.0 if c is None else c for c in predicted.confidences]
    order = sorted(
        range(len(predicted)),
        key=lambda i: (-confidences[i], -best[i], predicted.boxes[i] or ()),
    )
    values = []
    for label in set(gold.labels):
        columns = [j for j, name in enumerate(gold.labels) if name == label]
        ranked = [i for i in order if _is_of(predicted.labels[i], label, gold)]
        ranks = [-confidences[i] for i in ranked]
        for hits in of_label(pairs, ranked, columns, thresholds):
            # False positives first among equals: order by confidence, then miss before hit.
            best_first = [hit for _, hit in sorted(zip(ranks, hits, strict=True))]
            values.append(average_precision(best_first, len(columns)))
    return fsum(values) / len(values) * min(1.0, len(gold) / len(predicted))


def _best_overlaps(pairs: Pairs, predictions: int) -> list[float]:
    """The largest IoU of every prediction, 0 where it has none."""
    if isinstance(pairs, PairArrays):
        import numpy as np

        largest = np.zeros(predictions)
        np.maximum.at(largest, pairs.i, pairs.iou)
        return list(largest.tolist())
    best = [0.0] * predictions
    for i, _, iou in pairs:
        if iou > best[i]:
            best[i] = iou
    return best


def _is_of(predicted_label: str | None, label: str | None, gold: BoxList) -> bool:
    """Whether a prediction is ranked among those for ``label``."""
    if label is None:  # gold boxes without a label: for whatever is not claimed by a stated one
        return predicted_label is None or predicted_label not in gold.names
    return predicted_label == label or (predicted_label is None and len(gold.names) == 1)


def _hits_of_few(
    pairs: Pairs, ranked: list[int], columns: list[int], thresholds: Sequence[float]
) -> Iterator[list[bool]]:
    """At every threshold: for each prediction, best first, whether it takes one of the gold boxes
    ``columns`` that is still free, its best one.
    """
    found: dict[int, list[tuple[float, int]]] = {}  # prediction -> its gold boxes, best first
    for i, j, iou in pairs:
        found.setdefault(i, []).append((iou, j))
    for overlaps in found.values():
        overlaps.sort(reverse=True)
    for threshold in thresholds:
        least = threshold - EPSILON
        free = set(columns)
        hits = []
        for i in ranked:
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
        yield hits + [False] * (len(ranked) - len(hits))


def _hits_of_many(
    pairs: Pairs, ranked: list[int], columns: list[int], thresholds: Sequence[float]
) -> Iterator[list[bool]]:
    """The same as one table, gold boxes by predictions: steps from hit to hit, of which there
    are no more than gold boxes.
    """
    import numpy as np

    assert isinstance(pairs, PairArrays)
    row = _places(columns[::-1], int(pairs.j.max()))[pairs.j]  # of equal IoU the last gold box
    place = _places(ranked, int(pairs.i.max()))[pairs.i]
    inside = (row >= 0) & (place >= 0)
    table = np.zeros((len(columns), len(ranked)))
    table[row[inside], place[inside]] = pairs.iou[inside]
    for threshold in thresholds:
        can = table >= threshold - EPSILON
        left = can.sum(axis=0)  # free gold boxes that a prediction may take
        free = np.ones(len(columns), dtype=bool)
        hits = np.zeros(len(ranked), dtype=bool)
        at = 0
        while at < len(ranked):
            ahead = left[at:] > 0
            step = int(ahead.argmax())
            if not ahead[step]:
                break
            at += step
            own = int(np.where(free & can[:, at], table[:, at], 0.0).argmax())
            hits[at], free[own] = True, False
            left -= can[own]
            at += 1
        yield hits.tolist()


def _places(members: list[int], largest: int) -> NDArray[np.intp]:
    """Where each number up to ``largest`` stands among ``members``, -1 where it does not."""
    import numpy as np

    places = np.full(1 + max([largest, *members]), -1)
    places[members] = np.arange(len(members))
    return places
