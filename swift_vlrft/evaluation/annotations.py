"""COCO's or LVIS's annotation file as an evaluation needs it, decoded once.

annotations = open_annotations(Path("instances_val2017.json"))      None: a set of rows
annotations.chosen(["coco-novel15"])          {17: "cat", ...}
annotations.boxes[0]                          {"image_id": 9, "category_id": 18, "bbox": ...}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.build import chosen_categories
from swift_vlrft.datasets.coco_json import CocoFile
from swift_vlrft.datasets.instances import Instances
from swift_vlrft.datasets.opening import find_set
from swift_vlrft.datasets.row import Drawn

Pair = tuple[Any, Any]
"""Ids of an image and a category."""


@dataclass(frozen=True)
class Annotations:
    """``instances`` is the file checked, its boxes in norm1000; ``boxes`` are all boxes as they
    stand in it: pixels, crowd regions among them.
    """

    instances: Instances
    boxes: list[dict[str, Any]]

    @property
    def path(self) -> Path:
        return self.instances.path

    @cached_property
    def unsure(self) -> set[Pair]:
        """LVIS: where the file does not say all of a category in an image."""
        return {
            (i, c)
            for i, image in self.instances.images.items()
            for c in image.get("not_exhaustive_category_ids", ())
        }

    @cached_property
    def incomplete(self) -> set[Pair]:
        """Where gold boxes alone do not say every object: crowd regions, and what is unsure."""
        crowds = {(b["image_id"], b["category_id"]) for b in self.boxes if b["iscrowd"]}
        return crowds | self.unsure

    def is_labelled(self, pair: Pair) -> bool:
        """Whether a detection there can be called right or wrong: in LVIS, categories that an image
        is labelled with in full, or surely lacks.
        """
        image, category = pair
        absent = self.instances.absent
        if absent is None:
            return True
        known = image in self.instances.boxes[category] or image in absent[category]
        return known and pair not in self.unsure

    def chosen(self, names: Sequence[str]) -> dict[Any, str]:
        """Categories, or lists of them by name, as id: name; all of them where none is named."""
        ids = {name: c for c, name in self.instances.categories.items()}
        return {ids[name]: name for name in (chosen_categories(names, list(ids)) if names else ids)}

    def drawn(self, image: Any, *, exact: bool = True) -> Drawn:
        entry = self.instances.images[image]
        return Drawn(entry["width"], entry["height"], f"image {image}", exact)


@dataclass(frozen=True)
class Gold:
    """What detections are held against: annotations, or without them the rows' own solutions; of
    which categories, and by which protocol.
    """

    annotations: Annotations | None = None
    categories: Sequence[str] = ()
    protocol: str | None = None


GOLD_OF_ROWS = Gold()


def open_annotations(path: Path) -> Annotations | None:
    """None if ``path`` is no annotation file; DataError if it is one and is wrong."""
    stored = find_set(path) if path.is_file() and path.suffix == ".json" else None
    if not isinstance(stored, CocoFile):
        return None
    instances = stored.instances
    boxes = [
        {
            "image_id": one["image_id"],
            "category_id": one["category_id"],
            "bbox": one["bbox"],
            "area": one.get("area", one["bbox"][2] * one["bbox"][3]),
            "iscrowd": int(bool(one.get("iscrowd"))),
        }
        for one in instances.annotations
        if isinstance(one.get("bbox"), list) and len(one["bbox"]) == 4
    ]
    return Annotations(instances, boxes)
