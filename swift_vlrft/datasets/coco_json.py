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
from itertools import islice
from pathlib import Path

from swift_vlrft.datasets.build import detection_row, plan_rows
from swift_vlrft.datasets.forms import Form
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
from swift_vlrft.datasets.row import Drawn
from swift_vlrft.datasets.schema import RawExample
from swift_vlrft.datasets.source import DataError

LOOKED_FOR = 100
"""Images whose names are tried before the folder counts as not found."""


def coco_drafts(form: Form, root: Path | None) -> Iterator[tuple[RawExample, Drawn, Path]]:
    """Every row of an annotation file, the size that its boxes were drawn at, and the folder that
    its image lies below: found below ``root`` or beside the file.
    """
    found = read_instances(form.path)
    folder = image_folder(found, root)
    form.left_out |= _left_out(found)
    column = found.column_of
    for row in plan_rows(found, list(found.categories.values()), negatives=0.0):
        image = found.images[row.image_id]
        draft = detection_row(file_of(image), row.category, row.boxes)
        drawn = Drawn(image["width"], image["height"], f"image {row.image_id}")
        yield draft | {"image_id": column(row.image_id)}, drawn, folder


def _left_out(found: Instances) -> dict[str, list[str]]:
    """The images and categories that make no row, by reason."""
    made: dict[str, list[str]] = {}
    empty = found.images.keys() - {
        i for held in (found.boxes, found.unsure) for images in held.values() for i in images
    }
    if empty:
        made[NO_OBJECT] = [f"image {i}" for i in found.images if i in empty]
    for category, name in found.categories.items():
        for image_id in sorted(found.unsure[category], key=str):
            in_full = not not_exhaustive(found.images[image_id], category)
            if in_full or image_id in found.boxes[category]:
                reason = UNSURE if in_full else NOT_IN_FULL
                made.setdefault(reason, []).append(f"image {image_id}: {name}")
    return made


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
