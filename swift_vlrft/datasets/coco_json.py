"""Plain COCO on disk: annotations/instances_train2017.json and the images in train2017/.

    {"images": [{"id": 9, "file_name": "9.jpg", "width": 640, "height": 480}],
     "categories": [{"id": 18, "name": "dog"}],
     "annotations": [{"image_id": 9, "category_id": 18, "bbox": [64, 48, 320, 240]}]}

Each category of an image becomes one ViRFT row with all its boxes, in norm1000. Splits, shots and
negatives are for ``vlrft data coco``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from swift_vlrft.datasets.build import detection_row, plan_rows
from swift_vlrft.datasets.forms import Form
from swift_vlrft.datasets.instances import (
    NO_OBJECT,
    NOT_IN_FULL,
    UNSURE,
    Instances,
    file_of,
    not_exhaustive,
    read_instances,
)
from swift_vlrft.datasets.shape import Draft
from swift_vlrft.datasets.source import DataError


def coco_drafts(form: Form, root: Path | None) -> Iterator[Draft]:
    """Every row of an annotation file; its images are found below ``root`` or beside it."""
    found = read_instances(form.path)
    folder = image_folder(found, root)
    form.left_out |= _left_out(found)
    for row in plan_rows(found, list(found.categories.values()), negatives=0.0):
        image = str(folder / (file_of(found.images[row.image_id]) or ""))
        yield {**detection_row(image, row.category, row.boxes), "image_id": row.image_id}


def _left_out(found: Instances) -> dict[str, list[str]]:
    """The images and categories that make no row, by reason."""
    made: dict[str, list[str]] = {}
    for category, name in found.categories.items():
        for image_id in sorted(found.unsure[category], key=str):
            in_full = not not_exhaustive(found.images[image_id], category)
            if in_full or image_id in found.boxes[category]:
                reason = UNSURE if in_full else NOT_IN_FULL
                made.setdefault(reason, []).append(f"image {image_id}: {name}")
    usable = {i for by_image in (*found.boxes.values(), *found.unsure.values()) for i in by_image}
    if without := [f"image {i}" for i in found.images if i not in usable]:
        made[NO_OBJECT] = without
    return made


def image_folder(found: Instances, root: Path | None) -> Path:
    """The folder that holds the images: ``root``, or where COCO's own archives put them."""
    name = next((n for image in found.images.values() if (n := file_of(image))), None)
    here = found.path.parent
    split = found.path.stem.partition("_")[2]  # instances_train2017
    tried = [root / split, root] if root else []
    tried += [here.parent / split, here / split, here.parent / "images" / split]
    tried += [here.parent / "images", here / "images", here, here.parent]
    for folder in tried:
        if name is None or (folder / name).is_file():
            return folder
    raise DataError(
        f"{found.path}: its first image {name} is in none of {', '.join(map(str, tried))}; "
        "say where the images are with ROOT_IMAGE_DIR=FOLDER"
    )
