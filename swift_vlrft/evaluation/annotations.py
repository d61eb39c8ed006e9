"""Read COCO's or LVIS's annotation file once, as an evaluation needs it.

annotations = open_annotations(Path("instances_val2017.json"))      None: a set of rows
annotations.chosen(["coco-novel15"])          {17: "cat", ...}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.build import chosen_categories
from swift_vlrft.datasets.coco import CocoFile
from swift_vlrft.datasets.instances import Instances, not_exhaustive
from swift_vlrft.datasets.opening import find_set
from swift_vlrft.datasets.row import AnnotatedSize


@dataclass(frozen=True)
class Annotations:
    """Holds a checked annotation file; ``boxes`` are all its boxes in pixels, crowds too."""

    instances: Instances
    boxes: list[dict[str, Any]]

    def is_told(self, image: Any, category: Any) -> bool:
        """Return whether the file says if the image holds the category, as LVIS does not always."""
        held, absent = self.instances.boxes[category], self.instances.absent
        return absent is None or image in held or image in absent[category]

    def is_labelled(self, image: Any, category: Any) -> bool:
        """Return whether a box of the category is right or wrong by what the file says."""
        told, images = self.is_told(image, category), self.instances.images
        return told and not not_exhaustive(images[image], category)

    def chosen(self, names: Sequence[str]) -> dict[Any, str]:
        """Return categories, or named lists of them, as id: name; all if none is named."""
        ids = {name: c for c, name in self.instances.categories.items()}
        return {ids[name]: name for name in (chosen_categories(names, list(ids)) if names else ids)}

    def annotated_size(self, image: Any, *, exact: bool = True) -> AnnotatedSize:
        entry = self.instances.images[image]
        return AnnotatedSize(entry["width"], entry["height"], f"image {image}", exact)


@dataclass(frozen=True)
class Gold:
    """Holds what detections are compared with; by default the rows' solutions."""

    annotations: Annotations | None = None
    categories: Sequence[str] = ()


GOLD_OF_ROWS = Gold()


def open_annotations(path: Path) -> Annotations | None:
    """Open ``path``; None if it is not an annotation file, DataError if it is a broken file."""
    stored = find_set(path) if path.is_file() and path.suffix == ".json" else None
    if not isinstance(stored, CocoFile):
        return None
    instances = stored.instances
    for text in instances.bad.values():
        raise DataError(f"{path}: {text}; correct or remove the box")
    boxes = [
        {
            "image_id": box["image_id"],
            "category_id": box["category_id"],
            "bbox": box["bbox"],
            "area": box.get("area", box["bbox"][2] * box["bbox"][3]),
            "iscrowd": int(bool(box.get("iscrowd"))),
        }
        for box in instances.annotations
        if isinstance(box.get("bbox"), list) and len(box["bbox"]) == 4
    ]
    return Annotations(instances, boxes)
