"""Match predicted boxes with gold boxes, for all detection rewards and the reasons.

predicted  dog (10, 10, 60, 60), cat (10, 10, 60, 60)      gold  cat (10, 10, 60, 62)
the cat is matched with IoU 0.97; the dog is an extra box
"""

import json

from swift_vlrft.geometry import boxes as geometry
from swift_vlrft.geometry.assignment import match
from swift_vlrft.geometry.boxes import Array, Pair
from swift_vlrft.parsing.answers import BoxList, read_boxes
from swift_vlrft.rewards.contract import BOX, Task


def read_valid_boxes(text: str) -> BoxList | None:
    """Return the gold boxes, empty for "No Objects"; None if it is neither or a box is invalid."""
    boxes = read_boxes(text)
    return None if boxes is None or None in boxes.boxes else boxes


def read_labelled_boxes(text: str) -> BoxList | None:
    """Return the same; None, too, if a box has text under a key that is not read: its class?"""
    boxes = read_valid_boxes(text)
    return None if boxes is None or boxes.unread else boxes


def gold_as_answer(gold: BoxList) -> str:
    """Return the gold boxes as an answer, each with confidence 1."""
    pairs = zip(gold.boxes, gold.labels, strict=True)
    listed = [{"Position": b, "Confidence": 1} | ({"label": n} if n else {}) for b, n in pairs]
    return json.dumps(listed) if listed else "No Objects"


DETECTION = Task(
    "detection",
    read_labelled_boxes,
    "a list of boxes or 'No Objects'",
    has_boxes=True,
    asks_also=BOX,
    answer_of=gold_as_answer,
    headline="AP",
    format_reward="vlrft_detection_format",
    completion_tokens=1024,
    hub_category="object-detection",
)
read_gold = DETECTION.read_gold


def matching(predicted: BoxList, gold: BoxList, threshold: float = 0.5) -> list[Pair]:
    """Return the matched pairs: IoU >= ``threshold``, agreeing labels. The last ones of each
    prediction are kept, since several rewards need the same.
    """
    known = predicted.matched
    if known is None or known[0] is not gold or known[1] != threshold:
        # A match earns 2c under the confidence reward, and 1 without a confidence: as 0.5 would.
        pairs = match(overlap_table(predicted, gold, threshold), predicted.confidences)
        predicted.matched = known = gold, threshold, pairs
    return known[2]


def overlap_table(predicted: BoxList, gold: BoxList, threshold: float) -> Array:
    """Return the IoU of every prediction with every gold box: (predictions, gold boxes), 0 where it
    is under ``threshold`` or the labels disagree.
    """
    table = geometry.overlap_table(predicted.array, gold.array, threshold)
    if gold.names:
        agree = agreement(predicted, gold)
        table *= [agree[label] for label in predicted.labels]
    return table


def agreement(predicted: BoxList, gold: BoxList) -> dict[str | None, list[bool]]:
    """Say for each label of a prediction whether it agrees with each gold box: equal, or none where
    the gold boxes have at most one distinct label. A gold box without a label agrees with all.
    """
    return {
        label: [
            name is None or name == label or (label is None and len(gold.names) == 1)
            for name in gold.labels
        ]
        for label in set(predicted.labels)
    }
