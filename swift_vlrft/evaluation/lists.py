"""Compute metrics of lists in Python, one prediction and one solution per image or row.

average_precision([{"boxes": [[0, 0, 9, 9]], "scores": [0.8], "labels": [1]}], gold)["AP50"]    1.0
task_metrics("grounding", completions, solutions)["acc50"]                                      0.5
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from swift_vlrft.evaluation.annotations import GOLD_OF_ROWS
from swift_vlrft.evaluation.coco import COUNTED, Scores, coco_scores
from swift_vlrft.evaluation.metrics import build_table
from swift_vlrft.evaluation.predictions import Prediction, Predictions
from swift_vlrft.parsing.answers import BoxList, gold_text, normalise, plain, read, text_of
from swift_vlrft.rewards import TASK_NAMES
from swift_vlrft.rewards.matching import read_gold

Boxes = str | Mapping[str, Any]
"""A text as the rewards read it, or ``boxes`` with ``labels``, and ``scores`` or ``iscrowd``."""
BOX_FORMATS = ("xyxy", "xywh", "cxcywh")


def average_precision(
    predictions: Sequence[Boxes], solutions: Sequence[Boxes], *, box_format: str = "xyxy"
) -> Scores:
    """Return COCO's AP, AP50, AP75, AP by size (of boxes in pixels), precision, recall and F1.

    ``box_format`` is that of mappings, as torchmetrics has it: xyxy, xywh or cxcywh. Boxes without
    a label are all of one class; without a score they count as 1. Of equal scores, wrong boxes are
    ranked first: F1 at IoU 0.5 needs no ranking. ValueError names the row.

    >>> average_precision(["<answer>[0, 0, 9, 9]</answer>"], ["[0, 0, 9, 9]"])["AP50"]
    1.0
    """
    if box_format not in BOX_FORMATS:
        raise ValueError(f"box_format {box_format!r}: unknown; known: {', '.join(BOX_FORMATS)}")
    gold, found = list[Any](), list[Any]()
    for row, (said, right) in enumerate(_pairs(predictions, solutions)):
        said = said if isinstance(said, Mapping) else read(text_of(said)).boxes or BoxList()
        golds = right if isinstance(right, Mapping) else read_gold(right)
        if golds is None:
            raise ValueError(f"solutions, row {row}: {str(right)[:80]!r} is no list of boxes")
        here = [*_entries(golds, f"solutions, row {row}", box_format)]
        names = {entry["category_id"] for entry in here}
        there = [*_entries(said, f"predictions, row {row}", box_format)]
        for entry in there:  # as in the rewards: one label is meant, and none agrees with every
            if names == {None} or (len(names) == 1 and entry["category_id"] is None):
                entry["category_id"] = min(names)
        gold += [entry | {"image_id": row} for entry in here]
        found += [entry | {"image_id": row} for entry in there]
    for entry in (*gold, *found):
        entry["category_id"] = "object" if entry["category_id"] is None else entry["category_id"]
    categories = list({entry["category_id"]: None for entry in (*gold, *found)})
    scores = coco_scores(gold, found, range(len(solutions)), categories).mean
    if any(isinstance(one, str) for one in solutions):  # in thousandths, mostly
        return {name: value for name, value in scores.items() if not name.startswith("AP_")}
    return scores


def precision_recall_f1(
    predictions: Sequence[Boxes], solutions: Sequence[Boxes], *, box_format: str = "xyxy"
) -> Scores:
    """Return precision, recall and F1 of all boxes together, at IoU 0.5.

    >>> precision_recall_f1(["<answer>[[0, 0, 9, 9], [5, 5, 7, 7]]</answer>"], ["[0, 0, 9, 9]"])
    {'precision_50': 0.5, 'recall_50': 1.0, 'f1_50': 0.6666666666666666}
    """
    scores = average_precision(predictions, solutions, box_format=box_format)
    return {name: scores[name] for name in COUNTED}


def task_metrics(
    task: str, completions: Sequence[Any], solutions: Sequence[Any], **columns: Sequence[Any]
) -> Scores:
    """Return what `vlrft eval` computes of the answers to a task's rows.

    ``columns`` are further ones that it reads: aliases, tolerance, width, height, frame. ValueError
    names a row whose solution cannot be read.

    >>> metrics = task_metrics("classification", ["<answer>cat</answer>"] * 2, ["cat", "dog"])
    >>> metrics["accuracy"], metrics["parse_rate"]
    (0.5, 1.0)
    """
    if task not in TASK_NAMES:
        raise ValueError(f"task {task!r} is not known; known: {', '.join(TASK_NAMES)}")
    if wrong := [name for name, values in columns.items() if len(values) != len(solutions)]:
        raise ValueError(f"{wrong[0]}: {len(columns[wrong[0]])} values for {len(solutions)} rows")
    rows = []
    for n, (said, right) in enumerate(_pairs(completions, solutions)):
        fields = {"id": str(n), "image_id": str(n), "task": task} | {
            name: plain(values[n]) for name, values in columns.items()
        }
        fields |= {"completion": text_of(said), "solution": gold_text(right)}
        rows.append(msgspec.convert(fields, Prediction, strict=False))
    table = build_table(Predictions(task, rows), GOLD_OF_ROWS)
    for row, reason in zip(rows, table.reasons, strict=True):
        if reason.code == "bad_gold":
            raise ValueError(f"solutions, row {row.id}: {row.solution[:80]!r} is no gold of {task}")
    return table.values


def _pairs(predictions: Sequence[Any], solutions: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    if len(predictions) != len(solutions):
        raise ValueError(f"{len(predictions)} predictions, but {len(solutions)} solutions")
    if missing := [row for row, said in enumerate(predictions) if said is None]:
        raise ValueError(f"predictions, row {missing[0]}: None; write '' where there is no answer")
    return zip(predictions, solutions, strict=True)


def _entries(
    given: Mapping[str, Any] | BoxList, place: str, box_format: str
) -> Iterator[dict[str, Any]]:
    """The boxes of a row as COCO has them, with their label, or None, for a category."""
    if isinstance(given, BoxList):
        box_format = "xyxy"
        given = {"boxes": given.boxes, "labels": given.labels, "scores": given.confidences}
    columns = {name: plain(values) for name, values in given.items()}
    sizes = {name: len(values) for name, values in columns.items()}
    if "boxes" not in sizes or len({*sizes.values()}) > 1:
        raise ValueError(f"{place}: lists of one length are needed, boxes among them: {sizes}")
    for n, box in enumerate(columns["boxes"]):
        if box is None:  # invalid: it is not ranked
            continue
        try:
            a, b, c, d = box
            values = {name: columns[name][n] for name in columns}
        except (TypeError, ValueError, IndexError):
            text = "is not four numbers, or has no label, score .."
            raise ValueError(f"{place}: box {n} {text}") from None
        width, height = (c - a, d - b) if box_format == "xyxy" else (c, d)
        left, top = (a - c / 2, b - d / 2) if box_format == "cxcywh" else (a, b)
        label, score = values.get("labels"), values.get("scores")
        yield {
            "category_id": normalise(label) if isinstance(label, str) else label,
            "bbox": [left, top, width, height],
            "area": values.get("area", width * height),
            "iscrowd": values.get("iscrowd", 0),
            "score": 1.0 if score is None else score,
        }
