"""COCO has two forms. Plain, annotations/instances_train2017.json and the images in train2017/:

    {"images": [{"id": 9, "file_name": "9.jpg", "width": 640, "height": 480}],
     "categories": [{"id": 18, "name": "dog"}],
     "annotations": [{"image_id": 9, "category_id": 18, "bbox": [64, 48, 320, 240]}]}

In Parquet as ``detection-datasets/coco`` stores it, all objects of an image in one row:

    image     {"bytes": b"\\xff\\xd8...", "path": "000000000009.jpg"}, width 640, height 480
    objects   {"bbox": [[1.08, 187.69, 612.67, 473.53], ...], "category": [45, ...]}

with corners in pixels (Pascal VOC's way). Sets that store COCO's x, y, width, height in the same
columns are refused, and so are those whose boxes fit both: ``vlrft data convert`` takes ``--boxes``
and ``--unit``. Categories are names, or numbers of a ClassLabel.

Each category of an image becomes one ViRFT row with all its boxes, in norm1000. Splits, shots and
negatives are for ``vlrft data coco``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.build import detection_row, plan_rows
from swift_vlrft.datasets.instances import (
    COCO,
    NO_OBJECT,
    NOT_IN_FULL,
    UNSURE,
    Boxes,
    Instances,
    file_of,
    not_exhaustive,
    read_instances,
)
from swift_vlrft.datasets.row import AnnotatedSize, BadRow, RowLocation
from swift_vlrft.datasets.schema import (
    LOOKED_AT,
    Context,
    RawExample,
    RecordSchema,
    annotated_size_of,
    class_name,
    four_numbers,
    further,
)
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Record, Records, StoredSet
from swift_vlrft.geometry.box_format import convert_box
from swift_vlrft.geometry.readings import PictureSize, Reading, clipped, corners, fits

LOOKED_FOR = 100
"""So many images are looked for before the folder counts as not found."""


COLUMNS = ("image", "image_id", "category", "boxes", "annotated_size")


@dataclass
class CocoFile(StoredSet):
    """An annotation file gives a record for each category of an image, with all its boxes."""

    names: list[str] = field(default_factory=lambda: list(COLUMNS))

    @property
    def instances(self) -> Instances:
        """Return the instances, which are the same while the file does not change."""
        return read_instances(self.path, self.reading)

    def image_root(self) -> Path:
        return image_folder(self.instances, self.root)

    def _read(self, names: list[str]) -> Records:
        instances = self.instances
        self._leave_out(instances)
        for image, text in instances.bad.items():
            yield BadRow(RowLocation(self.path, image, "image"), text)
        column = instances.column_of
        rows = plan_rows(instances, [(name,) for name in instances.categories.values()])
        for row in rows:
            image = instances.images[row.image_id]
            yield (
                RowLocation(self.path, row.image_id, "image"),
                {
                    "image": file_of(image),
                    "image_id": column(row.image_id),
                    "category": row.names[0],
                    "boxes": row.boxes,
                    "annotated_size": AnnotatedSize(
                        image["width"], image["height"], f"image {row.image_id}"
                    ),
                },
            )

    def _leave_out(self, instances: Instances) -> None:
        """Note the images and categories that make no row."""
        by_category = instances.boxes, instances.unsure
        held = {i for by in by_category for images in by.values() for i in images}
        if empty := [f"image {i}" for i in instances.images if i not in held]:
            self.left_out[NO_OBJECT] = empty
        for category, name in instances.categories.items():
            for i in sorted(instances.unsure[category], key=str):
                in_full = not not_exhaustive(instances.images[i], category)
                if in_full or i in instances.boxes[category]:
                    reason = UNSURE if in_full else NOT_IN_FULL
                    self.left_out.setdefault(reason, []).append(f"image {i}: {name}")


def image_folder(instances: Instances, root: Path | None) -> Path:
    """Return the absolute folder that holds an image of the file: train2017 of
    instances_train2017.json in ``root``, or ``root``; else the same of the annotations' folder and
    the one above.
    """
    here = Path(os.path.abspath(instances.path)).parent
    around = [here.parent, here] if root is None else [Path(os.path.abspath(root))]
    split = instances.path.stem.partition("_")[2]  # instances_train2017
    tried = [*(at / split for at in around), *reversed(around)]
    names = [file_of(image) or "" for image in islice(instances.images.values(), LOOKED_FOR)]
    for folder in tried:
        if not names or any(os.path.lexists(folder / name) for name in names):  # or a broken link
            return folder
    folders = ", ".join(dict.fromkeys(map(str, tried)))
    raise DataError(
        f"{instances.path}: its images, {', '.join(names[:3])}, are in none of {folders}; say "
        "where they are with ROOT_IMAGE_DIR=FOLDER"
    )


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    example = detection_row(record["image"], record["category"], record["boxes"])
    yield example | {"image_id": record["image_id"], "annotated_size": record["annotated_size"]}


COCO_SCHEMA = RecordSchema(
    "coco", lambda columns: set(COLUMNS) <= columns, _rows, single=False, numbers="boxes"
)


# ---- Parquet ---------------------------------------------------------------------------------

LIGHT = ("objects", "width", "height")


def _matches_parquet(columns: set[str]) -> bool:
    return {"image", "objects"} <= columns


def _rows_of_objects(record: Record, context: Context) -> Iterator[RawExample]:
    boxes, categories, crowds = _objects(record["objects"])
    size = annotated_size_of(record, exact=True) or context.image_size(record["image"])
    sides = round(size.width), round(size.height)
    reading = context.known_reading or _reading(context)
    by_name: dict[str, Boxes] = {}
    unsure: dict[str, None] = {}
    for box, category, crowd in zip(boxes, categories, crowds, strict=True):
        name = class_name(category, context.labels.get("objects"), "category")
        if not four_numbers(box):
            raise ValueError(f"the box {box!r} is not four numbers")
        if not crowd and not fits(box, reading, sides):
            raise ValueError(
                f"the box {box}, {reading}, reaches beyond the image of {sides[0]} x {sides[1]}, "
                "ends before it begins, or is a dot"
            )
        if crowd or (inside := clipped(corners(box, reading, sides), sides)) is None:
            unsure[name] = None  # no box, but the category is there: no gold can be stated
            continue
        position = convert_box(inside, "pixels", "norm1000", size=sides)
        by_name.setdefault(name, []).append(position)
    if not by_name and not unsure:
        context.leave_out(NO_OBJECT)
    for name in unsure:
        context.leave_out(UNSURE, name)
    for name, gold in by_name.items():
        if name not in unsure:
            others = further(record, "image", "objects", "width", "height")
            if "category" in others:  # which is the object's in these rows
                others["row_category"] = others.pop("category")
            yield others | detection_row(record["image"], name, gold)


def _objects(objects: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Boxes, categories and crowd flags of a struct of lists or a list of structs."""
    if isinstance(objects, list):
        keys = objects[0].keys() if objects else ()
        objects = {key: [item.get(key) for item in objects] for key in keys}
    if not isinstance(objects, dict):
        raise ValueError(f"objects is {str(objects)[:80]}; bbox and category are needed")
    if not objects:
        return [], [], []
    if not {"bbox", "category"} <= objects.keys():
        raise ValueError(f"objects holds {', '.join(objects)}; bbox and category are needed")
    boxes, categories = objects["bbox"], objects["category"]
    if len(boxes) != len(categories):
        raise ValueError(f"{len(boxes)} boxes, but {len(categories)} categories")
    return boxes, categories, objects.get("iscrowd") or [False] * len(boxes)


def _reading(context: Context) -> Reading:
    sized = {"width", "height"} <= set(context.stored.columns)

    def boxes_of(record: Record) -> tuple[list[Any], PictureSize | None]:
        size = annotated_size_of(record, exact=True)
        sides = (size.width, size.height) if size else context.size_of(record.get("image"))
        return _objects(record["objects"])[0], sides

    columns, most = (LIGHT, None) if sized else ((*LIGHT, "image"), LOOKED_AT)
    return context.reading(columns, boxes_of, Reading("xyxy"), rival=COCO, most=most)


COCO_PARQUET_SCHEMA = RecordSchema(
    "coco-parquet", _matches_parquet, _rows_of_objects, single=False, numbers="objects"
)
