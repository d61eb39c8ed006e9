"""COCO in Parquet as ``detection-datasets/coco`` stores it: all objects of an image in one row.

    image     {"bytes": b"\\xff\\xd8...", "path": "000000000009.jpg"}, width 640, height 480
    objects   {"bbox": [[1.08, 187.69, 612.67, 473.53], ...], "category": [45, ...]}

Corners in pixels (Pascal VOC's way); sets that store COCO's x, y, width, height in the same
columns are told apart by their boxes. Categories are names, or numbers of a ClassLabel. Each
category of an image becomes one ViRFT row: all its boxes, in norm1000.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from swift_vlrft.datasets.build import detection_row
from swift_vlrft.datasets.instances import NO_OBJECT, UNSURE, Boxes
from swift_vlrft.datasets.schema import (
    Context,
    RawExample,
    RecordSchema,
    class_name,
    drawn_on,
    four_numbers,
)
from swift_vlrft.datasets.storage import Record
from swift_vlrft.geometry.box_format import convert_box

LIGHT = ("objects", "width", "height")
BOXES = ("bbox", "bboxes", "boxes")
CATEGORIES = ("category", "categories", "category_id", "label")


def _matches(columns: set[str]) -> bool:
    return {"image", "objects"} <= columns


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    boxes, categories, crowds = _objects(record["objects"])
    size = drawn_on(record, exact=True) or context.image_info(record["image"])
    width, height = round(size.width), round(size.height)
    if "corners" not in context.notes:
        context.notes["corners"] = _are_corners(context)
    by_name: dict[str, Boxes] = {}
    unsure: dict[str, None] = {}
    for box, category, crowd in zip(boxes, categories, crowds, strict=True):
        name = class_name(category, context.labels.get("objects"), "category")
        if not four_numbers(box):
            raise ValueError(f"the box {box!r} has not four numbers")
        x1, y1, a, b = box
        x2, y2 = (a, b) if context.notes["corners"] else (x1 + a, y1 + b)
        if x2 <= x1 or y2 <= y1 or crowd:
            unsure[name] = None  # no box, but the category is there: no gold can be stated
            continue
        if x1 < -1 or y1 < -1 or x2 > width + 1 or y2 > height + 1:
            raise ValueError(f"the box {box} reaches beyond the image of {width} x {height}")
        made = convert_box((x1, y1, x2, y2), "pixels", "norm1000", size=(width, height))
        by_name.setdefault(name, []).append(made)
    if not by_name and not unsure:
        context.leave_out(NO_OBJECT)
    for name in unsure:
        context.leave_out(UNSURE, name)
    for name, found in by_name.items():
        if name not in unsure:
            yield detection_row(record["image"], name, found)


def _objects(objects: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Boxes, categories and crowd flags of a struct of lists or a list of structs."""
    if isinstance(objects, list):
        keys = objects[0].keys() if objects else ()
        objects = {key: [item.get(key) for item in objects] for key in keys}
    if not isinstance(objects, dict):
        raise ValueError(f"objects is {str(objects)[:80]}; bbox and category are needed")
    if not objects:
        return [], [], []
    boxes = next((objects[key] for key in BOXES if key in objects), None)
    categories = next((objects[key] for key in CATEGORIES if key in objects), None)
    if boxes is None or categories is None:
        raise ValueError(f"objects holds {', '.join(objects)}; bbox and category are needed")
    if len(boxes) != len(categories):
        raise ValueError(f"{len(boxes)} boxes, but {len(categories)} categories")
    return boxes, categories, objects.get("iscrowd") or [False] * len(boxes)


def _are_corners(context: Context) -> bool:
    """Whether boxes are corners, by every box of the set (of a stream's first records): read as
    the other way, some would be inverted or reach beyond their image.
    """
    no_corners = no_sizes = 0
    for record in context.stored.sample(LIGHT):
        try:
            boxes, _, _ = _objects(record["objects"])
        except ValueError:
            continue
        size = drawn_on(record, exact=True)
        width, height = (size.width, size.height) if size else (1e9, 1e9)
        for box in boxes:
            if four_numbers(box):
                no_corners += box[2] < box[0] or box[3] < box[1]
                no_sizes += box[0] + box[2] > width + 1 or box[1] + box[3] > height + 1
    return no_corners <= no_sizes


COCO_PARQUET_SCHEMA = RecordSchema("coco-parquet", _matches, _rows, single=False)
