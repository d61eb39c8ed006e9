"""Score detection: find every object, with a confidence for each. matching.py pairs the boxes."""

from collections.abc import Sequence
from math import fsum
from typing import Any

from swift_vlrft.geometry.assignment import greedy
from swift_vlrft.geometry.boxes import EPSILON, average_precision
from swift_vlrft.parsing.answers import Answer, BoxList
from swift_vlrft.rewards.contract import CONFIDENCE, compares, reward
from swift_vlrft.rewards.matching import DETECTION, matching, overlap_table


@reward(DETECTION)
@compares("boxes")
def vlrft_detection_iou(predicted: BoxList, gold: BoxList, threshold: float = 0.5) -> float:
    """Sum of the matched IoU / max(number of predictions, number of gold boxes); a pair under IoU
    0.5 earns nothing. Source: Visual-RFT (arXiv 2503.01785), matched optimally.

    >>> vlrft_detection_iou(["<answer>[[0, 0, 8, 5], [9, 9, 99, 9]]</answer>"], ["[0, 0, 10, 5]"])
    [0.4]
    """
    matched = matching(predicted, gold, threshold)
    return fsum([iou for _, _, iou in matched]) / max(len(predicted), len(gold))


@reward(DETECTION, recommended=False, least_iou=EPSILON)
def vlrft_detection_iou_soft(answer: Answer, gold: BoxList) -> float:
    """``vlrft_detection_iou`` over pairs with any IoU above 0.

    For a model that cannot place boxes yet: every other detection reward is 0 below IoU 0.5.
    Source: ours.

    >>> vlrft_detection_iou_soft(["<answer>[0, 0, 100, 25]</answer>"], ["[0, 0, 100, 100]"])
    [0.25]
    """
    return vlrft_detection_iou.score(answer, gold, EPSILON)


@reward(DETECTION, reads_confidence=True, asks=(*DETECTION.asks, CONFIDENCE))
@compares("boxes")
def vlrft_detection_confidence(predicted: BoxList, gold: BoxList) -> float:
    """A proper scoring rule for confidences: stating your true probability is optimal.

    max(0, sum over matched of 2c - c^2, minus sum over unmatched of c^2) / max(n_pred, n_gold)
    A pair under IoU 0.5 is not matched. A confidence that is missing or outside [0, 1] contributes
    0 when matched and -1 when not. Of equal IoU, the prediction with the lower confidence is
    matched. Source: Brier's score, in place of Visual-RFT's confidence reward.

    >>> boxes = "[{'Position': [0, 0, 9, 9], 'Confidence': 0.5}]"
    >>> vlrft_detection_confidence([f"<answer>{boxes}</answer>"] * 2, [boxes, "[20, 20, 30, 30]"])
    [0.75, 0.0]
    """
    # 2c - c^2 when matched and -c^2 when not is 2c for the matched, less c^2 for all; without a
    # confidence, 0 when matched and -1 when not is 1 for the matched, less 1 for all.
    matched, confidences = matching(predicted, gold), predicted.confidences
    gain = fsum([1.0 if (c := confidences[i]) is None else 2.0 * c for i, _, _ in matched])
    cost = fsum([1.0 if c is None else c * c for c in confidences])
    return max(0.0, gain - cost) / max(len(predicted), len(gold))


@reward(DETECTION)
@compares("boxes")
def vlrft_detection_f1(predicted: BoxList, gold: BoxList) -> float:
    """F1 at IoU >= 0.5: 2 matched / (n_pred + n_gold). Source: GREC's F1 (arXiv 2308.16182).

    >>> boxes = "<answer>[[0, 0, 9, 9], [50, 50, 60, 60], [9, 9, 1, 1]]</answer>"
    >>> vlrft_detection_f1([boxes], ["[0, 0, 9, 9]"])
    [0.5]
    """
    return 2.0 * len(matching(predicted, gold)) / (len(predicted) + len(gold))


@reward(DETECTION, changes_in_training=True)
def vlrft_detection_iou_dynamic(answer: Answer, gold: BoxList, trainer_state: Any) -> float:
    """``vlrft_detection_iou`` with a threshold that rises with training progress.

    0.5, from 10 % of max_steps 0.75, from 25 % 0.9. Progress is read from ``trainer_state``
    (ms-swift and TRL pass it); without it progress is 0. Source: V-Triune's dynamic IoU reward.

    >>> vlrft_detection_iou_dynamic(["<answer>[0, 0, 100, 60]</answer>"], ["[0, 0, 100, 100]"])
    [0.6]
    """
    return vlrft_detection_iou.score(answer, gold, threshold_at(trainer_state))


@reward(DETECTION, sees_means=True)
def vlrft_detection_iou_adaptive(answer: Answer, gold: BoxList, means: list[float]) -> float:
    """``vlrft_detection_iou`` with a threshold that rises with its own recent mean.

    0.5, then 0.75, then 0.9: the next one once five logged means at a threshold are 0.6 on average.
    Without a trainer's ``trainer_state`` it stays 0.5. Source: ours.

    >>> vlrft_detection_iou_adaptive(["<answer>[0, 0, 100, 60]</answer>"], ["[0, 0, 100, 100]"])
    [0.6]
    """
    return vlrft_detection_iou.score(answer, gold, threshold_after(means))


@reward(DETECTION, needs=(), scores_format=True)
def vlrft_detection_format(answer: Answer) -> float:
    """1 if ``vlrft_format`` is 1 and the answer reads as valid boxes or as empty. Source: ours.

    >>> thought = "<think>t</think><answer>{}</answer>"
    >>> vlrft_detection_format([thought.format(text) for text in ("[1, 1, 9, 9]", "[9, 9, 1, 1]")])
    [1.0, 0.0]
    """
    boxes = answer.boxes
    return 1.0 if answer.well_formed and boxes is not None and None not in boxes.boxes else 0.0


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


def threshold_at(trainer_state: Any) -> float:
    """Return the IoU threshold for the trainer's ``global_step / max_steps``, 0.5 without one."""
    max_steps = getattr(trainer_state, "max_steps", None) or 0
    step = getattr(trainer_state, "global_step", None) or 0
    progress = step / max_steps if max_steps > 0 else 0.0
    return 0.5 if progress < 0.1 else 0.75 if progress < 0.25 else 0.9


def threshold_after(means: list[float]) -> float:
    """Return the IoU threshold of ``vlrft_detection_iou_adaptive`` after its logged means."""
    rising, recent = [0.5, 0.75, 0.9], list[float]()
    for mean in means:
        recent = [*recent[-4:], mean]
        if len(recent) == 5 and fsum(recent) >= 5 * 0.6 and len(rising) > 1:
            rising, recent = rising[1:], []
    return rising[0]


def _mean_ap(predicted: BoxList, gold: BoxList, thresholds: Sequence[float]) -> float:
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
            ious = greedy(overlaps * (overlaps >= threshold - EPSILON))
            # By confidence, among equals misses before hits.
            hits = sorted((ranks[i], overlap > 0.0) for i, overlap in zip(rows, ious, strict=True))
            values.append(average_precision([hit for _, hit in hits], len(columns)))
    return fsum(values) / len(values) * min(1.0, len(gold) / len(predicted))


def _is_of(predicted_label: str | None, label: str | None, gold: BoxList) -> bool:
    """Return whether a prediction is ranked among those for ``label``."""
    if label is None:  # gold boxes without a label take what has no label of another gold box
        return predicted_label is None or predicted_label not in gold.names
    return predicted_label == label or (predicted_label is None and len(gold.names) == 1)
