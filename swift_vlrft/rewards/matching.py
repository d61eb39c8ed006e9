"""Which predicted box is which gold box: shared by every detection reward and by the reasons.

predicted  dog (10, 10, 60, 60), cat (10, 10, 60, 60)      gold  cat (10, 10, 60, 62)
the cat is matched with IoU 0.97; the dog is an extra box
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from swift_vlrft.geometry.assignment import match
from swift_vlrft.geometry.boxes import Pair, PairArrays, Pairs, overlapping_pairs
from swift_vlrft.parsing.answers import Answer, BoxList, boxes_or_refusal, gold_text
from swift_vlrft.rewards.contract import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@lru_cache(maxsize=8192)
def read_gold(solution: str) -> BoxList | None:
    """The gold boxes, empty for "No Objects"; None where the text is neither or a box is
    invalid.
    """
    boxes = boxes_or_refusal(gold_text(solution))
    return None if boxes is None or None in boxes.boxes else boxes


DETECTION = Task("detection", read_gold, "a list of boxes or 'No Objects'")

Formula = Callable[[BoxList, BoxList, list[Pair]], float]
"""A score of predictions, gold boxes (neither empty) and their matched pairs."""


def score_boxes(answer: Answer, gold: BoxList, formula: Formula, threshold: float = 0.5) -> float:
    """``formula`` of the matched boxes at IoU >= ``threshold``; the rules for empty sides and
    unreadable text.
    """
    predicted = answer.boxes
    if not predicted or not gold:
        return score_without_boxes(predicted, gold)
    return formula(predicted, gold, matching(answer, gold, threshold))


def score_without_boxes(predicted: BoxList | None, gold: BoxList) -> float:
    """Where a side is empty: 1 if both are; unreadable text (None) earns nothing."""
    return 1.0 if predicted is not None and not predicted and not gold else 0.0


def matching(answer: Answer, gold: BoxList, threshold: float = 0.5) -> list[Pair]:
    """The matched pairs of a readable answer. Kept on the answer, since several rewards ask for
    the same.
    """
    memo = answer.memo
    if memo is not None and memo[0] is gold and memo[1] == threshold:
        return memo[2]  # type: ignore[no-any-return]
    predicted = answer.boxes or BoxList()
    pairs = same_label_pairs(predicted, gold, threshold)
    # Being matched earns 2c under the confidence reward, and 1 where none is stated: as 0.5 would.
    matched = match(pairs, predicted.confidences)
    answer.memo = (gold, threshold, matched)
    return matched


def same_label_pairs(predicted: BoxList, gold: BoxList, threshold: float) -> Pairs:
    """Pairs with IoU >= ``threshold`` whose labels agree.

    A prediction without a label agrees where the gold boxes bear at most one distinct label; a gold
    box without a label agrees with every prediction.
    """
    pairs = overlapping_pairs(predicted.boxes, gold.index, threshold)
    if not gold.names:
        return pairs
    if isinstance(pairs, PairArrays):
        return pairs.where(_agree(predicted, gold, pairs)).listed_if_few()
    return [
        (i, j, iou)
        for i, j, iou in pairs
        if gold.labels[j] is None
        or predicted.labels[i] == gold.labels[j]
        or (predicted.labels[i] is None and len(gold.names) == 1)
    ]


def _agree(predicted: BoxList, gold: BoxList, pairs: PairArrays) -> NDArray[np.bool_]:
    """The same rule for many pairs; labels are compared as numbers, 0 for none."""
    import numpy as np

    numbers = {name: n for n, name in enumerate(gold.names, start=1)}
    own = np.array([numbers[label] if label is not None else 0 for label in gold.labels])[pairs.j]
    unlabelled = 0 if len(gold.names) == 1 else -1
    said = np.array([unlabelled if n is None else numbers.get(n, -1) for n in predicted.labels])
    said = said[pairs.i]
    agree: NDArray[np.bool_] = (own == 0) | (said == own) | (said == 0)
    return agree
