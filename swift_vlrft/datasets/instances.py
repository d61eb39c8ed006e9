"""COCO's or LVIS's annotation file is read and checked: boxes by category and image, in norm1000.

    in    {"images": [{"id": 9, "file_name": "9.jpg", "width": 640, "height": 480}],
           "categories": [{"id": 18, "name": "dog"}],
           "annotations": [{"image_id": 9, "category_id": 18, "bbox": [64, 48, 320, 240]}]}
    out   boxes {18: {9: [(100, 100, 600, 600)]}}

A box is x, y, width, height in pixels of the image, unless another reading is stated;
an image with a box that leaves it is bad, and a file that another reading would fit is refused.
Where a category has a crowd region or a box without area in an image, or LVIS did not label every
one, its boxes are not the whole truth: the image is ``unsure`` for that category.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

from swift_vlrft.datasets.json_files import json_errors
from swift_vlrft.datasets.schema import (
    LOOKED_AT,
    MisreadBoxes,
    four_numbers,
    in_thousandths,
    refuse_misread,
)
from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.jsonl import read_json
from swift_vlrft.geometry.box_format import Corners
from swift_vlrft.geometry.boxes import area as area_of
from swift_vlrft.geometry.readings import (
    ENOUGH,
    MOST,
    READINGS,
    ROUNDING,
    Reading,
    SizedBox,
    corners,
    fits,
    leaving,
    ways,
)
from swift_vlrft.parsing.labels import normalise

UNSURE = (
    "a category of an image makes no row: a crowd region or a box without area stands for it, or "
    "its labels are not in full"
)
NO_OBJECT = "an image without an object makes no row"

Boxes = list[Corners]
COCO = Reading("xywh", "pixels")
OUTSIDE = f"leaves its image by more than {ROUNDING:g} pixels, ends before it begins, or is a dot,"

Id = int | str
Side = Annotated[float, msgspec.Meta(ge=1)]


class _Image(TypedDict):
    id: Id
    width: Side
    height: Side
    file_name: NotRequired[str | None]
    coco_url: NotRequired[str | None]
    not_exhaustive_category_ids: NotRequired[list[Id] | None]  # LVIS's, as the next
    neg_category_ids: NotRequired[list[Id] | None]


class _Category(TypedDict):
    id: Id
    name: Annotated[str, msgspec.Meta(pattern=r"[^\W_]")]


class _Annotation(TypedDict):
    id: NotRequired[Id]
    image_id: Id
    category_id: Id


class _File(TypedDict):
    """What every file holds, whatever stands beside it."""

    images: list[_Image]
    categories: list[_Category]
    annotations: list[_Annotation]


@dataclass
class Instances:
    """A COCO annotation file: ``boxes[category id][image id]`` in norm1000.

    ``unsure`` has, by category id, the images of which nothing can be said. ``annotations`` are as
    they stand in the file, in pixels, but for their outlines.
    """

    path: Path
    images: dict[Any, dict[str, Any]]
    categories: dict[Any, str]
    annotations: list[dict[str, Any]]
    boxes: dict[Any, dict[Any, Boxes]]
    unsure: dict[Any, set[Any]]
    absent: dict[Any, set[Any]] | None = None
    """LVIS: the images that surely lack a category. None: every image without a box lacks it."""
    left_out: Counter[str] = field(default_factory=Counter)
    bad: dict[Any, str] = field(default_factory=dict)
    """By image id, what is wrong with a box of it; ``images`` and ``boxes`` lack such images."""

    @cached_property
    def column_of(self) -> type[int] | type[str]:
        """Return an id for a column of image ids: text where not all are numbers of 64 bits."""
        whole = all(isinstance(i, int) and abs(i) < 2**63 for i in self.images)
        return int if whole else str


def decoded(path: Path) -> Any:
    """Decode a JSON file without COCO's outlines. A command that reads a file at several places
    decodes it once: the last two stay in memory until ``forget``.
    """
    return _decoded(path, *_stamp(path))


def read_instances(path: Path, reading: Reading | None = None) -> Instances:
    """Read and check ``instances_*.json`` (COCO) or ``lvis_v1_*.json``. DataError says where it is
    wrong. Boxes are x, y, width, height in pixels unless a ``reading`` is stated. A file that does
    not change is read once; treat what is handed out as read-only, but ``left_out``.
    """
    instances = _instances(path, reading, *_stamp(path))
    return replace(instances, left_out=instances.left_out.copy())


def forget() -> None:
    """Drop the files that were read: they are large, and training no longer needs them."""
    _decoded.cache_clear()
    _instances.cache_clear()


def _stamp(path: Path) -> tuple[int, int]:
    with json_errors(path):
        stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=2)
def _decoded(path: Path, size: int, changed: int) -> Any:
    with json_errors(path):
        return read_json(path, _outlines_as_boxes())


@lru_cache(maxsize=2)
def _instances(path: Path, stated: Reading | None, size: int, changed: int) -> Instances:
    reading = stated or COCO
    content = _decoded(path, size, changed)
    try:
        msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise DataError(f"{path} is no file of instances as COCO's: {error}; mend it") from None
    for key in ("images", "categories", "annotations"):
        _refuse_repeated([entry.get("id") for entry in content[key]], f"{path}: {key}", "id")
    categories = {category["id"]: category["name"] for category in content["categories"]}
    names = [normalise(name) for name in categories.values()]
    _refuse_repeated(names, f"{path}: categories", "name where names are compared")
    if nameless := [i for i, image in enumerate(content["images"]) if not file_of(image)]:
        raise DataError(f"{path}: images[{nameless[0]}] needs a file_name")
    files = [os.path.normpath(file_of(image)) for image in content["images"]]
    sentences = "of sentences, write rows: image, problem (the sentence), solution (its box)"
    _refuse_repeated(files, f"{path}: images", "file", sentences)
    images = {image["id"]: image for image in content["images"]}
    instances = Instances(
        path,
        images,
        categories,
        content["annotations"],
        boxes={c: {} for c in categories},
        unsure={c: set() for c in categories},
    )
    _take_out(instances, reading)
    for annotation in instances.annotations:
        if annotation["image_id"] in images:
            _add_annotation(instances, annotation, reading)
    absent: dict[Any, set[Any]] = {c: set() for c in categories}
    for i, image in images.items():
        for c in categories.keys() & (image.get("not_exhaustive_category_ids") or ()):
            instances.unsure[c].add(i)
        for c in categories.keys() & (image.get("neg_category_ids") or ()):
            absent[c].add(i)
    if any("neg_category_ids" in image for image in images.values()):
        instances.absent = absent
    return instances


def _refuse_repeated(values: list[Any], entries: str, what: str, more: str = "") -> None:
    """1 and "1" are the same id, as they are in predictions and file names. MDETR and UNINEXT store
    RefCOCO with an image for every sentence: each row would ask for a part of the boxes.
    """
    first: dict[str, int] = {}
    for i, value in enumerate(values):
        if value is not None and (there := first.setdefault(str(value), i)) != i:
            raise DataError(
                f"{entries}[{there}] and {entries.rpartition(' ')[2]}[{i}] have the same {what}, "
                f"{value!r}; give each its own, or make one of both{more and '; '}{more}"
            )


def file_of(image: dict[str, Any]) -> str:
    """Return the image's path below the images folder; LVIS gives a URL that ends in it."""
    return image.get("file_name") or "/".join((image.get("coco_url") or "").split("/")[-2:])


def not_exhaustive(image: dict[str, Any], category: Any) -> bool:
    return category in (image.get("not_exhaustive_category_ids") or ())


def _take_out(instances: Instances, reading: Reading) -> None:
    """Refuse a reading that does not fit the boxes; an image with a single box outside is bad."""
    path, images, annotations = instances.path, instances.images, instances.annotations
    for i, annotation in enumerate(annotations):
        place = f"{path}, annotations[{i}]"
        for what, known in (("image", images), ("category", instances.categories)):
            if (value := annotation[f"{what}_id"]) not in known:
                some = ", ".join(map(repr, islice(known, 3))) or "none"
                raise DataError(f"{place}: no {what} has the id {value!r}; ids are like {some}")
        if not annotation.get("iscrowd") and not four_numbers(box := annotation.get("bbox")):
            raise DataError(
                f"{place}: bbox is {box!r}; four numbers {reading} are needed; correct it"
            )
    at = [i for i, annotation in enumerate(annotations) if not annotation.get("iscrowd")]
    entries = [annotations[i] for i in at]
    boxes: list[SizedBox] = [(entry["bbox"], _size(images[entry["image_id"]])) for entry in entries]

    def shown(n: int) -> str:
        image, numbers = images[entries[n]["image_id"]], ", ".join(f"{v:g}" for v in boxes[n][0])
        return (
            f"annotations[{at[n]}], id {entries[n].get('id')}, [{numbers}] in image {image['id']}, "
            f"{file_of(image)}, of {image['width']} x {image['height']}"
        )

    refuse_misread(path, boxes, reading, shown)
    _refuse_contradicted(path, entries, boxes, reading)
    for n in leaving(boxes, reading):
        text = f"{shown(n)}: {OUTSIDE} if it is {reading}"
        instances.bad.setdefault(entries[n]["image_id"], text)
    for image in instances.bad:
        del images[image]


def _add_annotation(instances: Instances, annotation: dict[str, Any], reading: Reading) -> None:
    i, category = annotation["image_id"], annotation["category_id"]
    box = None
    if annotation.get("iscrowd"):
        instances.left_out["crowd regions"] += 1
    elif (box := in_thousandths(annotation["bbox"], reading, _size(instances.images[i]))) is None:
        instances.left_out["boxes without area"] += 1
    if box is None:
        instances.unsure[category].add(i)
    elif box in (of_image := instances.boxes[category].setdefault(i, [])):
        # COCO's own files hold some: a model finds the object once
        instances.left_out["boxes that repeat a box of the same category and image"] += 1
    else:
        of_image.append(box)


def _size(image: dict[str, Any]) -> tuple[int, int]:
    return image["width"], image["height"]


# ---- what the file says of a box besides its numbers --------------------------------------------


def _outlines_as_boxes() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """For json's ``object_hook``: the first outlines become boxes, and the others are let go."""
    seen = count()

    def hook(entry: dict[str, Any]) -> dict[str, Any]:
        if "segmentation" in entry:
            looked_at = next(seen) < LOOKED_AT
            entry["segmentation"] = _outer_box(entry["segmentation"]) if looked_at else None
        return entry

    return hook


def _outer_box(polygons: Any) -> list[float] | None:
    """The corners of the box around polygons; None for a mask in runs, or another value."""
    try:
        xs = [float(side(p[::2])) for p in polygons for side in (min, max)]
        ys = [float(side(p[1::2])) for p in polygons for side in (min, max)]
        return [min(xs), min(ys), max(xs), max(ys)]
    except (TypeError, ValueError):
        return None


EVIDENCE: tuple[tuple[str, Callable[[Corners, Any], bool]], ...] = (
    (
        "segmentation",
        lambda box, outer: max(abs(a - b) for a, b in zip(box, outer, strict=True)) <= ROUNDING,
    ),
    ("area", lambda box, area: 0.99 * area <= area_of(box) <= 1.01 * area),
    ("area", lambda box, area: area <= 1.01 * area_of(box)),
)
"""What a file says of a box besides its numbers, and whether that goes with the box."""


def _refuse_contradicted(
    path: Path, entries: list[dict[str, Any]], boxes: list[SizedBox], reading: Reading
) -> None:
    """Raise MisreadBoxes where polygons, or areas, say that boxes are of another reading.

    "bbox": [12, 30, 88, 120], "area": 6840     corners, as 88 x 120 is no area of 6,840
    """
    for key, agrees in EVIDENCE:
        judged = [
            (*box, value)
            for entry, box in islice(zip(entries, boxes, strict=True), LOOKED_AT)
            if isinstance(value := entry.get(key), list if key == "segmentation" else int | float)
        ]
        fitting = {
            way: sum(
                fits(box, way, size) and agrees(corners(box, way, size), value)
                for box, size, value in judged
            )
            for way in READINGS
        }
        # That a box lies around a polygon in a wrong reading is no chance; of an area it may be.
        enough = max(MOST * len(judged), 1 if key == "segmentation" else ENOUGH)
        if fitting[reading] >= enough:
            return
        if better := [way for way in READINGS if fitting[way] >= enough]:
            raise MisreadBoxes(
                path,
                f"{fitting[reading]} of {len(judged)} boxes agree with their {key} as {reading}, "
                f"and {fitting[better[0]]} {ways(better, '; or ')}",
            )
