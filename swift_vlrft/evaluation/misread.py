"""Refuse boxes that mean something else than they say, before an AP of 0 is believed.

    [{"image_id": 9, "category_id": 17, "bbox": [0.1, 0.2, 0.4, 0.5], "score": 0.9}, ..]
    "hardly a number of its 48 boxes is above 1: they are shares, not x, y, width, height in pixels"

A list is refused if its boxes leave their images, or lie on the gold boxes in another reading
alone. Answers in words are the model's: they get a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from swift_vlrft.datasets.units import READINGS, Reading, are_shares, corners, leaving, misfit
from swift_vlrft.evaluation.annotations import Annotations
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction
from swift_vlrft.geometry.boxes import Box, iou
from swift_vlrft.parsing.answers import BoxList, read

COCO_FORM = Reading()
"""What COCO's results hold: x, y, width, height in pixels."""
HIT_IOU = 0.5
"""IoU with a gold box of the image, of any category."""
LEAST_HITS = 0.3
"""Of the best boxes, as many at least lie on a gold box in the reading that is meant."""
MOST_IMAGES = 500

Entry = dict[str, Any]


def refuse_misread(annotations: Annotations, entries: Sequence[Entry]) -> None:
    """Raise EvaluationError if the boxes of a list cannot be COCO's results.

    ``entries`` are of images of the annotations, their categories known or not.
    """
    images = annotations.instances.images
    sizes = {i: (image["width"], image["height"]) for i, image in images.items()}
    boxes = [(entry["bbox"], sizes[entry["image_id"]]) for entry in entries]
    outside = leaving(boxes, COCO_FORM)
    if misread := misfit(boxes, COCO_FORM, len(outside), stated=True):
        problem, ways = misread
        raise _other_boxes(f"{problem}; they fit as {' or '.join(map(str, ways)) or 'nothing'}")
    best, golds = _best(annotations, entries)
    hits = {
        reading: sum(
            any(_is_hit(entry, reading, sizes, gold) for gold in golds[entry["image_id"]])
            for entry in best
        )
        for reading in READINGS
    }
    likely = max(READINGS, key=lambda reading: (hits[reading], reading == COCO_FORM))
    if hits[likely] >= max(2, LEAST_HITS * len(best)) and hits[COCO_FORM] * 2 <= hits[likely]:
        raise _other_boxes(
            f"{hits[COCO_FORM]} of the {len(best)} best boxes lie on a gold box as {COCO_FORM}, "
            f"{hits[likely]} as {likely}"
        )
    if len(outside) * 2 > len(boxes):
        problem = f"{len(outside)} of {len(boxes)} boxes leave their images as {COCO_FORM}"
        raise _other_boxes(f"{problem}, and they fit as nothing else")


def _other_boxes(problem: str) -> EvaluationError:
    return EvaluationError(
        f"the list of boxes does not hold COCO's results: {problem}. Write bbox as {COCO_FORM} "
        "of the stored image"
    )


def _best(
    annotations: Annotations, entries: Sequence[Entry]
) -> tuple[list[Entry], dict[Any, list[Box]]]:
    """The best-scored boxes, as many per image as it has gold boxes; and gold boxes by image."""
    golds: dict[Any, list[Box]] = {}
    for gold in annotations.boxes:
        x, y, width, height = gold["bbox"]
        golds.setdefault(gold["image_id"], []).append((x, y, x + width, y + height))
    best, taken = list[Entry](), Counter[Any]()
    for entry in sorted(entries, key=lambda entry: -entry["score"]):
        image = entry["image_id"]
        if taken[image] < len(golds.get(image, ())) and (taken[image] or len(taken) < MOST_IMAGES):
            taken[image] += 1
            best.append(entry)
    return best, golds


def _is_hit(entry: Entry, reading: Reading, sizes: dict[Any, Any], gold: Box) -> bool:
    x1, y1, x2, y2 = corners(entry["bbox"], reading, sizes[entry["image_id"]])
    return x1 < x2 and y1 < y2 and iou((x1, y1, x2, y2), gold) >= HIT_IOU


def note_of_answers(rows: Iterable[Prediction]) -> str | None:
    """Return a note if most boxes of the answers cannot be in their rows' box format."""
    boxes = [
        (box, row.box_range)
        for row in rows
        if row.box_range is not None and row.box_format != "unit"
        for box in (read(row.completion).boxes or BoxList()).boxes
        if box is not None
    ]
    outside = leaving(boxes, Reading("xyxy"))
    if are_shares([box for box, _ in boxes]):
        problem = f"hardly a number of the answers' {len(boxes)} boxes is above 1, as in shares"
    elif boxes and len(outside) * 2 > len(boxes):
        problem = f"{len(outside)} of the answers' {len(boxes)} boxes leave their images"
    else:
        return None
    return f"{problem}: `vlrft score` says which box format they fit; evaluate on SET:FORMAT"
