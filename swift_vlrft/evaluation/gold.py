"""Gold boxes and predicted ones in COCO's form, out of rows or out of an annotation file.

    row         image_id 9, category "dog", frame norm1000, 640 x 480, one box (100, 100, 600, 600)
    gold        {"image_id": 9, "category_id": "dog", "bbox": [64, 48, 320, 240], ...}

Two protocols, whose numbers do not compare:

    all         every category of the set is asked of every image, or a sample of such questions.
                A box of a question that was not asked is not missed.
    visual-rft  only categories that an existence map names for an image are asked (Visual-RFT's
                evaluation; its map was made with the untrained model). Boxes of categories that
                it does not name stay in the gold: they are missed, whatever the model can do.

Rows of a set that asks its own questions are scored as they stand (protocol ``rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.build import chosen_categories
from swift_vlrft.datasets.image import ImageInfo, size_problem
from swift_vlrft.datasets.instances import file_of, read_instances
from swift_vlrft.datasets.row import Drawn
from swift_vlrft.evaluation.pictures import Pictures
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Prediction,
    Predictions,
    Problems,
)
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import BoxList, normalise, read
from swift_vlrft.rewards.matching import read_gold

PROTOCOLS = ("all", "visual-rft", "rows")


@dataclass
class BoxSet:
    """What average precision is worked out from. Categories and images are whatever names them;
    ``units`` says which images are one picture.
    """

    gold: list[dict[str, Any]] = field(default_factory=list)
    found: list[dict[str, Any]] = field(default_factory=list)
    images: list[Any] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    units: dict[Any, str] = field(default_factory=dict)
    sizes_known: bool = True


def boxes_of_rows(rows: Sequence[Prediction], problems: Problems) -> BoxSet:
    """Gold and predictions of rows that bring their own solution."""
    made = BoxSet()
    number: dict[tuple[str, str], int] = {}
    seen: dict[tuple[str, str | None], int] = {}
    names: dict[str, None] = {}
    kept: list[tuple[Prediction, BoxList, int]] = []
    for row in rows:
        gold = read_gold(row.solution)
        if gold is None:
            continue  # counted where rows are scored
        # The same question asked twice of a picture is a picture of its own, or its gold doubles.
        turn = seen.get((row.image_id, row.category), 0)
        seen[row.image_id, row.category] = turn + 1
        image = number.setdefault((row.image_id, str(turn)), len(number) + 1)
        made.units[image] = row.image_id
        kept.append((row, gold, image))
        if row.category is not None:
            names.setdefault(row.category)
        else:
            names.update(dict.fromkeys(label or "object" for label in gold.labels))
        if row.width is None or row.height is None or row.whole is None:
            made.sizes_known = row.frame == "pixels" and made.sizes_known
    made.images = list(range(1, len(number) + 1))
    made.categories = sorted(names) or ["object"]
    known = set(made.categories)
    for row, gold, image in kept:
        for n, box in enumerate(gold.boxes):
            if box is not None:
                name = row.category or gold.labels[n] or "object"
                made.gold.append(_entry(row, image, name, box))
        for name, box, score in _stated(row, gold, known, problems):
            made.found.append({**_entry(row, image, name, box), "score": score})
    return made


def _stated(
    row: Prediction, gold: BoxList, known: set[str], problems: Problems
) -> Iterable[tuple[str, Box, float]]:
    """The valid boxes of an answer with their category and score; a confidence that is missing or
    outside [0, 1] ranks as 1, as in the rewards.
    """
    answer = read(row.completion).boxes or BoxList()
    for n, box in enumerate(answer.boxes):
        if box is None:
            continue
        confidence = answer.confidences[n]
        score = 1.0 if confidence is None else confidence
        name = row.category
        if name is None:
            label = answer.labels[n]
            if label is None and len(gold.names) <= 1:
                label = next(iter(gold.names), "object")
            name = label or "object"
            if name not in known:
                problems.add("boxes of unknown categories, not ranked", name)
                continue
        yield name, box, score


def _entry(row: Prediction, image: Any, category: str, box: Box) -> dict[str, Any]:
    x1, y1, x2, y2 = box
    if (whole := row.whole) is not None and row.width and row.height:
        x1, x2 = x1 * row.width / whole[0], x2 * row.width / whole[0]
        y1, y2 = y1 * row.height / whole[1], y2 * row.height / whole[1]
    width, height = x2 - x1, y2 - y1
    return {
        "image_id": image,
        "category_id": category,
        "bbox": [x1, y1, width, height],
        "area": width * height,
        "iscrowd": 0,
    }


@dataclass
class Annotations:
    """COCO's or LVIS's annotation file: gold boxes as they stand in it, in pixels."""

    path: Path
    images: dict[Any, dict[str, Any]]
    categories: dict[Any, str]
    boxes: list[dict[str, Any]]
    unsure: dict[Any, set[Any]]
    """By category: images of which LVIS does not say all."""
    asked_of: dict[Any, set[Any]] | None
    """LVIS: by category, the images that are labelled with it or surely lack it."""


def read_annotations(path: Path) -> Annotations:
    """Read and check an annotation file; DataError says where it is wrong."""
    checked = read_instances(path)
    lvis = checked.absent is not None
    unsure: dict[Any, set[Any]] = {c: set() for c in checked.categories}
    asked: dict[Any, set[Any]] | None = None
    if lvis:
        asked = {c: set(checked.boxes[c]) | checked.absent[c] for c in checked.categories}  # type: ignore[index]
        for i, image in checked.images.items():
            for c in image.get("not_exhaustive_category_ids", ()):
                if c in unsure:
                    unsure[c].add(i)
    boxes = [
        {
            "image_id": one["image_id"],
            "category_id": one["category_id"],
            "bbox": one["bbox"],
            "area": one.get("area", one["bbox"][2] * one["bbox"][3]),
            "iscrowd": int(bool(one.get("iscrowd"))),
        }
        for one in checked.annotations
        if isinstance(one.get("bbox"), list) and len(one["bbox"]) == 4
    ]
    return Annotations(path, checked.images, checked.categories, boxes, unsure, asked)


def categories_of(annotations: Annotations, wanted: Sequence[str]) -> dict[Any, str]:
    """Chosen categories, or lists of them by name, as id: name; all of them where none is said."""
    known = list(annotations.categories.values())
    names = set(chosen_categories(wanted, known)) if wanted else set(known)
    return {c: name for c, name in annotations.categories.items() if name in names}


def boxes_of_annotations(
    annotations: Annotations,
    predictions: Predictions,
    *,
    categories: Sequence[str] = (),
    protocol: str = "all",
) -> BoxSet:
    """Gold of an annotation file, predictions of rows or of COCO's results."""
    chosen = categories_of(annotations, categories)
    made = BoxSet(categories=sorted(chosen.values()))
    by_text = {str(i): i for i in annotations.images}
    ids = {normalise(name): c for c, name in annotations.categories.items()}
    problems = predictions.problems
    asked: set[tuple[Any, Any]] = set()
    incomplete = {
        (one["image_id"], one["category_id"]) for one in annotations.boxes if one["iscrowd"]
    } | {(image, c) for c, images in annotations.unsure.items() for image in images}
    if predictions.detections is not None:
        for entry in predictions.detections.rows:
            image = by_text.get(str(entry["image_id"]))
            if image is None:
                problems.add("boxes of unknown images, left out", entry["image_id"])
            elif entry["category_id"] not in annotations.categories:
                problems.add("boxes of unknown categories, left out", entry["category_id"])
            elif entry["category_id"] in chosen:
                name = chosen[entry["category_id"]]
                made.found.append({**entry, "image_id": image, "category_id": name})
    files = [(str(i), file_of(image) or str(i)) for i, image in annotations.images.items()]
    named = Pictures(files)
    once: list[Prediction] = []
    for row in predictions.rows:
        image = by_text.get(row.image_id)
        if image is None:  # `swift infer` writes the picture's path and no id
            found = named.find(row.pictures) or set()
            image = by_text[next(iter(found))] if len(found) == 1 else None
        category = None if row.category is None else ids.get(normalise(row.category))
        if image is None:
            problems.add("rows of unknown images, left out", row.image_id)
        elif category is None:
            problems.add("rows of unknown categories, left out", row.category)
        elif (image, category) in asked:
            problems.add("duplicates, of which the first counts", row.place or row.id)
            continue
        elif category in chosen:
            asked.add((image, category))
            row.image_id = str(image)
            row.incomplete = (image, category) in incomplete
            size = annotations.images[image]
            _refuse_turned(row, Drawn(size["width"], size["height"], f"image {image}", exact=False))
            if row.frame == "pixels" and row.seen is None and row.width and row.height:
                row.seen = (row.width, row.height)  # of a training row: what the model saw
            row.width, row.height = int(size["width"]), int(size["height"])
            row.frame = row.frame or "norm1000"
            for _, box, score in _stated(row, BoxList(), set(), problems):
                made.found.append({**_entry(row, image, chosen[category], box), "score": score})
        once.append(row)
    predictions.rows = once
    restricted = predictions.detections is None and protocol == "all"
    made.images = (
        sorted({image for image, _ in asked}, key=str) if restricted else list(annotations.images)
    )
    if restricted and not asked:
        raise EvaluationError(
            f"no prediction is of an image and category of {annotations.path}; "
            f"its images are like {', '.join(list(by_text)[:3])}"
        )
    if restricted:
        with_rows = set(made.images)
        for image in (i for i in annotations.images if i not in with_rows):
            problems.add("images of the annotations that no row asks about, not scored", image)
    for one in annotations.boxes:
        if one["category_id"] not in chosen:
            continue
        if restricted and (one["image_id"], one["category_id"]) not in asked:
            continue
        made.gold.append({**one, "category_id": chosen[one["category_id"]]})
    if any(annotations.unsure.values()):
        _drop_unsure(made, annotations, chosen, problems)
    made.units = {image: str(image) for image in made.images}
    return made


def _refuse_turned(row: Prediction, drawn: Drawn) -> None:
    """Answers in thousandths, or in pixels of what the model saw, fit a copy of any size; where the
    picture was shown turned, they fit none of the boxes.
    """
    head = ImageInfo(row.width, row.height, plain=True) if row.width and row.height else None
    if problem := size_problem({"path": row.image}, head, drawn):
        raise EvaluationError(f"the prediction {row.id}: {problem}")


def _drop_unsure(
    made: BoxSet, annotations: Annotations, chosen: dict[Any, str], problems: Problems
) -> None:
    """LVIS: where not every object of a category is labelled, a found box cannot be called false;
    and of other categories of an image nothing is known.
    """
    drop = {(i, chosen[c]) for c in chosen for i in annotations.unsure[c]}
    sure = (
        None
        if annotations.asked_of is None
        else {(i, chosen[c]) for c in chosen for i in annotations.asked_of[c]}
    )

    def kept(entry: dict[str, Any]) -> bool:
        pair = (entry["image_id"], entry["category_id"])
        return pair not in drop and (sure is None or pair in sure)

    before = len(made.found)
    made.gold = [entry for entry in made.gold if kept(entry)]
    made.found = [entry for entry in made.found if kept(entry)]
    if before > len(made.found):
        problems.add(
            "boxes where LVIS does not say whether the image holds the category, left out",
            annotations.path.name,
            before - len(made.found),
        )
