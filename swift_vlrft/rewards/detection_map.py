"""Score detection as COCO scores a detector: by ranked confidence."""

from collections.abc import Sequence
from math import fsum

from swift_vlrft.geometry.assignment import greedy
from swift_vlrft.geometry.boxes import EPSILON, average_precision
from swift_vlrft.parsing.answers import BoxList
from swift_vlrft.rewards.contract import compares, reward
from swift_vlrft.rewards.matching import DETECTION, overlap_table

COCO_THRESHOLDS = tuple(0.5 + 0.05 * n for n in range(10))


@reward(DETECTION, reads_confidence=True)
@compares("boxes")
def vlrft_detection_map(predicted: BoxList, gold: BoxList) -> float:
    """COCO AP (IoU 0.5 to 0.95) averaged over gold labels, x min(1, n_gold / n_pred).

    Predictions rank by confidence, false positives first among equals. A confidence that is missing
    or outside [0, 1] ranks as 1. Source: COCO; the length factor is VLM-R1's odLength.

    >>> vlrft_detection_map(["<answer>[0, 0, 100, 80]</answer>"], ["[0, 0, 100, 100]"])  # 7 of 10
    [0.7]
    """
    return _mean_ap(predicted, gold, COCO_THRESHOLDS)


@reward(DETECTION, reads_confidence=True)
@compares("boxes")
def vlrft_detection_map50(predicted: BoxList, gold: BoxList) -> float:
    """``vlrft_detection_map`` at the one threshold 0.5. Source: COCO's AP50, and VLM-R1.

    >>> box = "{'Position': [%d, 0, %d, 9], 'Confidence': %g}"  # a miss ranks before the hit
    >>> said = f"<answer>[{box % (0, 9, 0.4)}, {box % (50, 60, 0.9)}]</answer>"
    >>> vlrft_detection_map50([said], ["[0, 0, 9, 9]"])  # precision 1/2, x 1 gold / 2 predictions
    [0.25]
    """
    return _mean_ap(predicted, gold, COCO_THRESHOLDS[:1])


def _mean_ap(predicted: BoxList, gold: BoxList, thresholds: Sequence[float]) -> float:
    import numpy as np  # here, so that importing the rewards does not wait for it

    table = overlap_table(predicted, gold, thresholds[0])
    ranks = [-1.0 if c is None else -c for c in predicted.confidences]
    best = table.max(axis=1)
    order = sorted(
        range(len(predicted)), key=lambda i: (ranks[i], -best[i], predicted.boxes[i] or ())
    )
    values = []
    for label in set(gold.labels):
        # From the last gold box to the first: of equal overlaps COCO takes the last.
        columns = [j for j, name in enumerate(gold.labels) if name == label][::-1]
        rows = [i for i in order if _is_of(predicted.labels[i], label, gold)]
        overlaps = table[rows][:, columns]
        for threshold in thresholds:
            ious = greedy(np.where(overlaps >= threshold - EPSILON, overlaps, 0.0))
            # By confidence, among equals misses before hits.
            hits = sorted((ranks[i], overlap > 0.0) for i, overlap in zip(rows, ious, strict=True))
            values.append(average_precision([hit for _, hit in hits], len(columns)))
    return fsum(values) / len(values) * min(1.0, len(gold) / len(predicted))


def _is_of(predicted_label: str | None, label: str | None, gold: BoxList) -> bool:
    """Return whether a prediction is ranked among those for ``label``."""
    if label is None:  # gold boxes without a label take what has no label of another gold box
        return predicted_label is None or predicted_label not in gold.names
    return predicted_label == label or (predicted_label is None and len(gold.names) == 1)
