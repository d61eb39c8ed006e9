"""Bring gold and predicted boxes into COCO's form, from rows or from an annotation file.

    row         image_id 9, category "dog", frame norm1000, 640 x 480, one box (100, 100, 600, 600)
    gold        {"image_id": 9, "category_id": "dog", "bbox": [64, 48, 320, 240], ...}

Three protocols, whose results are not comparable:

    all         every category of the set is asked of every image, or a sample of such queries.
                A box of a query that was not asked does not count as missed.
    coco        a list of boxes: every gold box that it lacks is missed.
    rows        rows of a set with its own queries are scored as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from swift_vlrft.datasets.build import chosen_categories
from swift_vlrft.datasets.image import ImageSize, size_problem
from swift_vlrft.evaluation.annotations import Annotations, Gold
from swift_vlrft.evaluation.misread import refuse_misread
from swift_vlrft.evaluation.predictions import (
    Detection,
    EvaluationError,
    Prediction,
    Predictions,
    Problems,
)
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.geometry.readings import ENOUGH
from swift_vlrft.parsing.answers import BoxList, normalise, read
from swift_vlrft.rewards.matching import read_gold


@dataclass
class BoxSet:
    """Holds the input of average precision; ``units`` maps an image entry to its image."""

    gold: list[dict[str, Any]] = field(default_factory=list)
    predicted: list[dict[str, Any]] = field(default_factory=list)
    units: dict[Any, str] = field(default_factory=dict)
    categories: list[str] = field(default_factory=list)
    sizes_known: bool = True
    protocol: str | None = None


def detection_boxes(predictions: Predictions, gold: Gold) -> tuple[Predictions, BoxSet]:
    """Return the predictions that count, and their boxes."""
    names = gold.categories
    if gold.annotations is not None:
        return boxes_of_annotations(gold.annotations, predictions, names)
    if predictions.detections is not None:
        raise EvaluationError(
            "these predictions hold boxes without gold; give `vlrft eval` the annotation file they "
            "were made on with --gold, such as instances_val2017.json"
        )
    rows, problems = predictions.rows, predictions.problems.joined()
    if names:
        known = sorted({row.category for row in rows if row.category is not None})
        chosen = set(chosen_categories(names, known))
        rows = [row for row in rows if row.category in chosen]
    boxes = boxes_of_rows(rows, problems)
    return replace(predictions, rows=rows, problems=problems), boxes


def boxes_of_rows(rows: Sequence[Prediction], problems: Problems) -> BoxSet:
    """Return gold and predicted boxes of rows that have a solution."""
    boxes, names, predicted = BoxSet(protocol="rows"), set[str](), list[dict[str, Any]]()
    turns: Counter[tuple[str, str | None]] = Counter()
    numbers: dict[tuple[str, int], int] = {}
    for row in rows:
        gold = read_gold(row.solution)
        if gold is None:
            continue  # counted where rows are scored
        # A repeated query becomes a new image entry, or its gold would count twice.
        turn = turns[row.image_id, row.category]
        turns[row.image_id, row.category] += 1
        image = numbers.setdefault((row.image_id, turn), len(numbers) + 1)
        boxes.units[image] = row.image_id
        labels = [row.category or label or "object" for label in gold.labels]
        names |= {row.category} if row.category else set(labels)
        if row.size is None or row.box_range is None:
            boxes.sizes_known = row.box_format == "pixels" and boxes.sizes_known
        for box, label in zip(gold.boxes, labels, strict=True):
            if box is not None:
                boxes.gold.append(_entry(row, image, label, box))
        predicted += _answered(row, image, row.category, gold)
    boxes.categories = sorted(names) or ["object"]
    for entry in predicted:
        if entry["category_id"] in names:
            boxes.predicted.append(entry)
        else:
            problems.add("boxes of unknown categories, not ranked", entry["category_id"])
    return boxes


def _answered(
    row: Prediction, image: Any, category: Any, gold: BoxList | None = None
) -> Iterator[dict[str, Any]]:
    """The valid boxes of an answer, under ``category`` if it is given.

    Without it a box counts under its own label, or under the only one of ``gold``, whose boxes
    agree with every label if they have none. A confidence that is missing or outside [0, 1] ranks
    as 1, as in the rewards.
    """
    answer = read(row.completion).boxes or BoxList()
    only = next(iter(gold.names), None) if gold is not None and len(gold.names) <= 1 else None
    for box, label, confidence in zip(answer.boxes, answer.labels, answer.confidences, strict=True):
        if box is not None:
            stated = None if gold and not gold.names else label
            name = category or (only if stated is None else stated) or "object"
            score = 1.0 if confidence is None else confidence
            yield _entry(row, image, name, box) | {"score": score}


def _entry(row: Prediction, image: Any, category: Any, box: Box) -> dict[str, Any]:
    x1, y1, x2, y2 = box
    if row.box_range is not None and row.size is not None:
        (w, h), (right, bottom) = row.size, row.box_range
        # Multiplied first: a rounded factor moves an IoU that is exactly at a threshold.
        x1, x2, y1, y2 = x1 * w / right, x2 * w / right, y1 * h / bottom, y2 * h / bottom
    width, height = x2 - x1, y2 - y1
    place = {"image_id": image, "category_id": category}
    return place | {"bbox": [x1, y1, width, height], "area": width * height, "iscrowd": 0}


def boxes_of_annotations(
    annotations: Annotations, predictions: Predictions, categories: Sequence[str]
) -> tuple[Predictions, BoxSet]:
    """Return the rows on images of the annotations, each query once, and their boxes."""
    instances, chosen = annotations.instances, annotations.chosen(categories)
    problems = predictions.problems.joined()
    rows = _located(annotations, predictions.rows, chosen, problems)
    protocol = "all" if predictions.detections is None else "coco"
    boxes = BoxSet(categories=sorted(chosen.values()), protocol=protocol)
    predicted = _listed(annotations, predictions.detections or (), problems)
    if not rows and not predicted and predictions.detections != []:
        images = ", ".join(map(str, [*instances.images][:3]))
        names = ", ".join([f"{c}: {name}" for c, name in chosen.items()][:3])
        raise EvaluationError(
            f"no prediction has an image and a category of {instances.path}; its images are like "
            f"{images}, its categories {names}"
        )
    for (image, category), row in rows.items():
        predicted += _answered(row, image, category)
    gold, scored = annotations.boxes, list(instances.images)
    if predictions.detections is None:
        gold = [box for box in gold if (box["image_id"], box["category_id"]) in rows]
        queried = {image for image, _ in rows}
        for image in scored:
            if image not in queried:
                problems.add("images of the annotations that no row asks about, not scored", image)
        scored = sorted(queried, key=str)
    boxes.units = {image: str(image) for image in scored}
    for kept, entries in ((boxes.gold, gold), (boxes.predicted, predicted)):
        asked = [entry for entry in entries if entry["category_id"] in chosen]
        kept += [
            {**entry, "category_id": chosen[entry["category_id"]]}
            for entry in asked
            if annotations.is_labelled(entry["image_id"], entry["category_id"])
        ]
        if kept is boxes.predicted and (dropped := len(asked) - len(kept)):
            what = "boxes where LVIS does not say whether the image holds the category, left out"
            problems.add(what, instances.path.name, dropped)
    return replace(predictions, rows=list(rows.values()), problems=problems), boxes


def _listed(
    annotations: Annotations, detections: Sequence[Detection], problems: Problems
) -> list[dict[str, Any]]:
    """The boxes of a list that are of images and categories of the annotations."""
    images = {str(i): i for i in annotations.instances.images}
    located: list[dict[str, Any]] = []
    for entry in detections:
        image = images.get(str(entry["image_id"]))
        if image is None:
            problems.add("boxes of unknown images, left out", entry["image_id"])
        else:
            located.append({**entry, "image_id": image})
    if (in_vain := refuse_misread(annotations, located)) >= ENOUGH:
        what = "boxes of the best scores, of which none lies on a gold box of its category: are "
        what += "image ids, categories and sizes those of the annotations?"
        problems.add(what, annotations.instances.path.name, in_vain)
    known = annotations.instances.categories
    for category in (box["category_id"] for box in located if box["category_id"] not in known):
        problems.add("boxes of unknown categories, left out", category)
    return [box for box in located if box["category_id"] in known]


def _located(
    annotations: Annotations, rows: Sequence[Prediction], chosen: dict[Any, str], problems: Problems
) -> dict[tuple[Any, Any], Prediction]:
    """The rows by image and category, with the image sizes from the annotations."""
    images = {str(i): i for i in annotations.instances.images}
    ids = {normalise(name): c for c, name in annotations.instances.categories.items()}
    located: dict[tuple[Any, Any], Prediction] = {}
    for row in rows:
        image = images.get(row.image_id)
        category = None if row.category is None else ids.get(normalise(row.category))
        if image is None:
            problems.add("rows of unknown images, left out", row.image_id)
        elif category is None:
            problems.add("rows of unknown categories, left out", row.category)
        elif (image, category) in located:
            problems.add("duplicates, of which the first counts", row.place or row.id)
        elif category in chosen:
            annotated = annotations.annotated_size(image, exact=False)  # a copy may be of any size
            shown = None if row.size is None else ImageSize(*row.size, plain=True)
            if problem := size_problem({"path": row.image}, shown, annotated):
                raise EvaluationError(f"the prediction {row.id}: {problem}")
            box_format = row.box_format or "norm1000"
            located[image, category] = msgspec.structs.replace(
                row,
                image_id=str(image),
                category=chosen[category],
                # In a training row, width and height are those of the resized image.
                seen=row.seen or (row.size if box_format == "pixels" else None),
                width=int(annotated.width),
                height=int(annotated.height),
                box_format=box_format,
            )
    return located
