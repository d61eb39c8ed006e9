"""COCO has two forms. Plain, annotations/instances_train2017.json and the images in train2017/, is
read by instances.py. In Parquet as ``detection-datasets/coco`` stores it, all objects of an image
are in one row:

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
    UNSURE,
    Boxes,
    Instances,
    file_of,
    not_exhaustive,
    read_instances,
)
from swift_vlrft.datasets.row import AnnotatedSize, BadRow, RowLocation
from swift_vlrft.datasets.schema import (
    Context,
    RawExample,
    RecordSchema,
    box_of,
    class_name,
    further,
)
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Record, Records, StoredSet

LOOKED_FOR = 100
"""So many images are looked for before the folder counts as not found."""
NEEDED = {"bbox", "category"}
COLUMNS = ("image", "image_id", "category", "boxes", "annotated_size")
"""What is read of a category of an image."""


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
        instances, categories = self.instances, self.instances.categories
        by_category = instances.boxes, instances.unsure
        held = {i for by in by_category for images in by.values() for i in images}
        if empty := [f"image {i}" for i in instances.images if i not in held]:
            self.left_out[NO_OBJECT] = empty
        for category, name in categories.items():
            for i in sorted(instances.unsure[category], key=str):
                doubted = not_exhaustive(instances.images[i], category)
                if not doubted or i in instances.boxes[category]:  # else it may not even be there
                    self.left_out.setdefault(UNSURE, []).append(f"image {i}: {name}")
        for i, text in instances.bad.items():
            yield BadRow(RowLocation(self.path, i, "image"), text)
        for row in plan_rows(instances, [(name,) for name in categories.values()]):
            image, i = instances.images[row.image_id], instances.column_of(row.image_id)
            size = AnnotatedSize(image["width"], image["height"], f"image {row.image_id}")
            values = file_of(image), i, *row.names, row.boxes, size
            place = RowLocation(self.path, row.image_id, "image")
            yield place, dict(zip(COLUMNS, values, strict=True))


def image_folder(instances: Instances, root: Path | None) -> Path:
    """Return the absolute folder that holds an image of the file: train2017 of
    instances_train2017.json in ``root``, or ``root``; else the same of the annotations' folder and
    the one above.
    """
    here = Path(os.path.abspath(instances.path)).parent
    around = [here.parent, here] if root is None else [Path(os.path.abspath(root))]
    split = instances.path.stem.partition("_")[2]  # instances_train2017
    tried = [*(at / split for at in around), *reversed(around)]
    names = [file_of(image) for image in islice(instances.images.values(), LOOKED_FOR)]
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


COCO_SCHEMA = RecordSchema("coco", set(COLUMNS).issubset, _rows, single=False, numbers="boxes")


# ---- Parquet ---------------------------------------------------------------------------------


def _rows_of_objects(record: Record, context: Context) -> Iterator[RawExample]:
    objects = _objects(record["objects"])
    size = context.sides(record, "image")
    reading = context.reading(
        "objects", "image", lambda value: [one["bbox"] for one in _objects(value)], rival=COCO
    )
    by_name: dict[str, Boxes] = {}
    unsure: dict[str, None] = {}
    for one in objects:
        name = class_name(one["category"], context.labels.get("objects"), "category")
        if one.get("iscrowd") or (box := box_of(one["bbox"], reading, size)) is None:
            unsure[name] = None  # no box, but the category is there: no gold can be stated
        else:
            by_name.setdefault(name, []).append(box)
    if not objects:
        context.leave_out(NO_OBJECT)
    for name in unsure:
        context.leave_out(UNSURE, name)
    others = further(record, "image", "objects", "width", "height")
    if "category" in others:  # which is the object's in these rows
        others["row_category"] = others.pop("category")
    for name, gold in by_name.items():
        if name not in unsure:
            yield others | detection_row(record["image"], name, gold)


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list of structs, or in a struct of lists."""
    objects = value
    if isinstance(value, dict):
        lists = {k: v for k, v in value.items() if k in {*NEEDED, "iscrowd"} and v is not None}
        if value and (not lists.keys() >= NEEDED or {*map(type, lists.values())} != {list}):
            raise ValueError(f"objects holds {', '.join(value)}; lists bbox, category are needed")
        if len({*map(len, lists.values())}) > 1:
            counts = ", ".join(f"{len(of)} of {key}" for key, of in lists.items())
            raise ValueError(f"objects holds {counts}; each object needs one of each")
        objects = [dict(zip(lists, one, strict=True)) for one in zip(*lists.values(), strict=True)]
    elif not isinstance(value, list):
        raise ValueError(f"objects is {str(value)[:80]}; bbox and category are needed")
    for one in objects:
        if not isinstance(one, dict) or not one.keys() >= NEEDED:
            raise ValueError(f"objects holds {str(one)[:80]}; bbox and category are needed")
    return [*objects]


COCO_PARQUET_SCHEMA = RecordSchema(
    "coco-parquet", {"image", "objects"}.issubset, _rows_of_objects, single=False, numbers="objects"
)
