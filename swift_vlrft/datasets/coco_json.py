"""Plain COCO on disk: annotations/instances_train2017.json and the images in train2017/.

    {"images": [{"id": 9, "file_name": "9.jpg", "width": 640, "height": 480}],
     "categories": [{"id": 18, "name": "dog"}],
     "annotations": [{"image_id": 9, "category_id": 18, "bbox": [64, 48, 320, 240]}]}

Each category of an image becomes one ViRFT row with all its boxes, in norm1000. Splits, shots and
negatives are for ``vlrft data coco``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from swift_vlrft.datasets.build import detection_row, plan_rows
from swift_vlrft.datasets.image import image_path
from swift_vlrft.datasets.instances import (
    NO_OBJECT,
    NOT_IN_FULL,
    UNSURE,
    Instances,
    file_of,
    not_exhaustive,
    read_instances,
)
from swift_vlrft.datasets.row import Drawn, RowLocation
from swift_vlrft.datasets.schema import Context, RawExample, RecordSchema
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Record, Records, StoredSet

LOOKED_FOR = 100
"""Images whose names are tried before the folder counts as not found."""


COLUMNS = ("image", "image_id", "category", "boxes", "drawn")


@dataclass
class CocoFile(StoredSet):
    """An annotation file: its records are an image and a category with all its boxes."""

    names: list[str] = field(default_factory=lambda: list(COLUMNS))

    @property
    def instances(self) -> Instances:
        """Of a file that does not change the same, however often it is asked for."""
        return read_instances(self.path)

    def image_root(self) -> Path:
        return image_folder(self.instances, self.root)

    def _read(self, names: list[str]) -> Records:
        found = self.instances
        self._leave_out(found)
        column = found.column_of
        rows = plan_rows(found, list(found.categories.values()), negatives=0.0)
        for number, row in enumerate(rows):
            image = found.images[row.image_id]
            yield (
                RowLocation(self.path, number),
                {
                    "image": file_of(image),
                    "image_id": column(row.image_id),
                    "category": row.category,
                    "boxes": row.boxes,
                    "drawn": Drawn(image["width"], image["height"], f"image {row.image_id}"),
                },
            )

    def _leave_out(self, found: Instances) -> None:
        """Note the images and categories that make no row."""
        held = {i for by in (found.boxes, found.unsure) for images in by.values() for i in images}
        if empty := [f"image {i}" for i in found.images if i not in held]:
            self.left_out[NO_OBJECT] = empty
        for category, name in found.categories.items():
            for i in sorted(found.unsure[category], key=str):
                in_full = not not_exhaustive(found.images[i], category)
                if in_full or i in found.boxes[category]:
                    reason = UNSURE if in_full else NOT_IN_FULL
                    self.left_out.setdefault(reason, []).append(f"image {i}: {name}")


def image_folder(found: Instances, root: Path | None) -> Path:
    """The folder that holds the images, absolute: ``root``, or where COCO's own archives put them;
    the one that holds the first image that is found at all.
    """
    names = [file_of(image) or "" for image in islice(found.images.values(), LOOKED_FOR)]
    here = Path(os.path.abspath(found.path)).parent
    root = None if root is None else Path(os.path.abspath(root))
    split = found.path.stem.partition("_")[2]  # instances_train2017
    tried = [root / split, root] if root else []
    tried += [here.parent / split, here / split, here.parent / "images" / split]
    tried += [here.parent / "images", here / "images", here, here.parent]
    for name in names:
        for folder in tried:
            inside = image_path(name, folder, None).is_relative_to(folder)
            if inside and os.path.lexists(folder / name):  # a link that leads nowhere, too
                return folder
    if not names:
        return tried[0]
    raise DataError(
        f"{found.path}: its first image{'s' * (len(names) > 1)} {', '.join(names[:3])} "
        f"{'are' if len(names) > 1 else 'is'} in none of "
        f"{', '.join(dict.fromkeys(map(str, tried)))}; "
        "say where the images are with ROOT_IMAGE_DIR=FOLDER"
    )


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    made = detection_row(record["image"], record["category"], record["boxes"])
    yield made | {"image_id": record["image_id"], "drawn": record["drawn"]}


COCO_SCHEMA = RecordSchema("coco", lambda columns: set(COLUMNS) <= columns, _rows, single=False)
