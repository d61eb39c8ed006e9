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

from swift_vlrft.datasets.build import NO_OBJECTS, PROMPT, plan_rows
from swift_vlrft.datasets.forms import Form
from swift_vlrft.datasets.instances import Instances, file_of, read_instances
from swift_vlrft.datasets.shape import Draft
from swift_vlrft.datasets.source import DataError


def coco_drafts(form: Form, root: Path | None) -> Iterator[Draft]:
    """Every row of an annotation file; its images are found below ``root`` or beside it."""
    found = read_instances(form.path)
    folder = image_folder(found, root)
    for row in plan_rows(found, list(found.categories.values()), negatives=0.0):
        gold = [{"Position": list(box), "Confidence": 1} for box in row.boxes]
        yield {
            "image": str(folder / (file_of(found.images[row.image_id]) or "")),
            "problem": PROMPT.format(category=row.category),
            "solution": f"<answer>{gold}</answer>" if gold else NO_OBJECTS,
            "task": "detection",
            "frame": "norm1000",
            "category": row.category,
            "image_id": row.image_id,
        }


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
