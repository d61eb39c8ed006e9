"""Refuse boxes that mean something else than they say, before an AP of 0 is believed.

    [{"image_id": 9, "category_id": 17, "bbox": [0.1, 0.2, 0.4, 0.5], "score": 0.9}, ..]
    "48 of 48 boxes do not fit their images as x, y, width, height in pixels; 48 fit as ..."

A list is refused if most of its boxes leave their images, or lie on the gold boxes in another
reading alone. Answers in words are the model's: they get a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from swift_vlrft.diagnostics.readings import BoxFormatCheck
from swift_vlrft.evaluation.annotations import Annotations
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.geometry.readings import Answer, Reading, cause, leaving, matches, misfit
from swift_vlrft.parsing.answers import read
from swift_vlrft.rewards import Task

COCO_FORM = Reading()
"""What COCO's results hold: x, y, width, height in pixels."""
MOST_IMAGES = 500


def refuse_misread(annotations: Annotations, entries: Sequence[dict[str, Any]]) -> int:
    """Raise EvaluationError if the boxes of a list cannot be COCO's results; return how many boxes
    were compared with the gold in vain, if none lies on a gold box of its category.

    ``entries`` are of images of the annotations, their categories known or not.
    """
    best = _best(annotations, entries, "image_id")
    images = annotations.instances.images
    sizes = {i: (image["width"], image["height"]) for i, image in images.items()}
    boxes = [(entry["bbox"], sizes[entry["image_id"]]) for entry in entries]
    outside = len(leaving(boxes, COCO_FORM))
    other = cause(best)
    if other and other.total * 2 > sum(len(answer.boxes) for answer in best):
        problem = f"{other.matched} of {other.total} misplaced boxes lie on the gold boxes as "
        problem += str(other.reading)
    elif outside * 2 > len(boxes):
        wrong = misfit(boxes, COCO_FORM)
        problem = wrong.said() if wrong else f"{outside} of {len(boxes)} boxes leave their images"
    else:
        of_category = _best(annotations, entries, "image_id", "category_id")
        return 0 if matches(of_category, None) else sum(len(answer.boxes) for answer in best)
    raise EvaluationError(
        f"the list of boxes does not hold COCO's results: {problem}. Write bbox as {COCO_FORM} "
        "of the stored image"
    )


def _best(annotations: Annotations, entries: Sequence[dict[str, Any]], *keys: str) -> list[Answer]:
    """The best-scored boxes of the first images, by ``keys`` as many as there are gold boxes."""
    golds: dict[tuple[Any, ...], tuple[Box, ...]] = {}
    sizes: dict[tuple[Any, ...], tuple[float, float]] = {}
    for gold in annotations.boxes:
        image, of = annotations.instances.images[gold["image_id"]], tuple(gold[k] for k in keys)
        (x, y, w, h), (width, height) = gold["bbox"], (image["width"], image["height"])
        box = x / width, y / height, (x + w) / width, (y + h) / height
        golds[of], sizes[of] = (*golds.get(of, ()), box), (width, height)
    said: dict[tuple[Any, ...], list[Any]] = {}
    for entry in sorted(entries, key=lambda entry: -entry["score"]):
        said.setdefault(tuple(entry[k] for k in keys), []).append(entry["bbox"])
    return [
        Answer(said[of][: len(golds[of])], golds[of], COCO_FORM, {"": sizes[of]})
        for of in said
        if of in golds
    ][:MOST_IMAGES]


def notes_of_answers(task: Task, rows: Iterable[Prediction]) -> list[str]:
    """Note boxes that look as if they were in another box format, and what is not read in them."""
    check = BoxFormatCheck()
    for row in rows:
        if (gold := task.read_gold(row.solution)) is not None:
            width, height = row.seen or row.size or (None, None)
            stated = {"frame": row.box_format, "width": width, "height": height}
            check.add_row(task, gold, read(row.completion), stated)
    return [*filter(None, [check.problem()]), *check.unread(ranked=True).values()]
