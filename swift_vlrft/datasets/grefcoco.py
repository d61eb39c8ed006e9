"""gRefCOCO (Liu et al., CVPR 2023) has phrases for one object, for several, and for none.

grefs(unc).json, a list, beside the boxes in COCO's instances.json:

    {"ref_id": 7, "image_id": 581857, "split": "train", "ann_id": [-1], "category_id": [-1],
     "sentences": [{"sent_id": 21, "sent": "the dog on the sofa", "raw": "...", "tokens": [...]}],
     "file_name": "COCO_train2014_000000581857_16.jpg", "no_target": true}

``ann_id`` names annotations of instances.json; [-1] is a phrase that names nothing in its image.
Each sentence is a row: of grounding if it has one target or none ("No Objects"), in one prompt, so
that the prompt does not tell; of detection if it has several. Where a command asks for grounding,
phrases of several targets make no row; where it asks for detection, every phrase makes a row of
it.

The keys are those that henghuiding/gRefCOCO's own conversion reads (mdetr/scripts/fine-tuning/
grefexp_coco_format.py); boxes are COCO's x, y, width, height; no published file was at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import units
from swift_vlrft.datasets.build import NO_OBJECTS
from swift_vlrft.datasets.coco import image_folder
from swift_vlrft.datasets.instances import (
    COCO,
    Instances,
    file_of,
    read_instances,
    refuse_bad_images,
)
from swift_vlrft.datasets.json_files import JsonFiles
from swift_vlrft.datasets.row import BadRow, Drawn
from swift_vlrft.datasets.schema import (
    ANSWER_FORM,
    Context,
    RawExample,
    RecordSchema,
    four_numbers,
    text_in,
)
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import SPLITS, splits_in
from swift_vlrft.datasets.storage import Record, Records
from swift_vlrft.geometry.box_format import convert_box

NOTHING = "If nothing in the image is described so, return 'No Objects'.\n"
ONE = (
    "Give the bounding box (between 0 and 1000, integer) of the object that this phrase describes: "
    "{}\n" + NOTHING + ANSWER_FORM.replace("{}", "[x1, y1, x2, y2]")
)
SEVERAL = (
    "Give the bounding boxes (between 0 and 1000, integer) of all objects that this phrase "
    "describes, with confidence (between 0 and 1, with two decimal places): {}\n"
    + NOTHING
    + ANSWER_FORM.replace("{}", "[{{'Position': [x1, y1, x2, y2], 'Confidence': number}}, ...]")
)
MANY = "a phrase for several targets makes no grounding row"


@dataclass
class GrefFile(JsonFiles):
    """The phrases that state ``split`` as their own; all phrases where it is empty."""

    split: str = ""
    splits: list[str] = field(default_factory=list)
    """The splits among train, validation and test that have phrases."""

    @classmethod
    def of(cls, stored: JsonFiles, split: str) -> GrefFile:
        """Raise DataError if the split has no phrase, or instances.json is not beside the file."""
        phrases = cls(**{f.name: getattr(stored, f.name) for f in fields(stored)}, split=split)
        boxes = phrases.files[0].parent / "instances.json"
        if not boxes.exists():
            raise DataError(f"{stored.path} needs COCO's boxes beside it: {boxes} does not exist")
        there = dict.fromkeys(name for record in phrases._all() for name in _splits(record))
        if split and split not in there:
            raise DataError(f"{stored.path} has no split {split!r}; it has {', '.join(there)}")
        phrases.splits = [name for name in there if name in SPLITS]
        return phrases

    @property
    def instances(self) -> Instances:
        file = self.files[0].parent / "instances.json"
        instances = read_instances(file, self.reading)
        refuse_bad_images(instances)
        return instances

    def image_root(self) -> Path:
        return image_folder(self.instances, self.root)

    def _all(self) -> Iterator[Record]:
        return (row[1] for row in super()._read([]) if not isinstance(row, BadRow))

    def _read(self, names: list[str]) -> Records:
        for row in super()._read(names):
            if isinstance(row, BadRow) or not self.split or self.split in _splits(row[1]):
                yield row


def _splits(record: Record) -> list[str]:
    """testA is test, too; a phrase that states no split is of train."""
    name = str(record.get("split") or "train")
    return [name, *splits_in(name)[:1]]


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    stored = context.stored
    if not isinstance(stored, GrefFile):
        raise ValueError("phrases of gRefCOCO are read from their JSON file, beside instances.json")
    instances = stored.instances
    if "by id" not in context.notes:
        context.notes["by id"] = {entry.get("id"): entry for entry in instances.annotations}
    image = instances.images.get(record["image_id"])
    if image is None:
        raise ValueError(f"image_id is {record['image_id']!r}, which instances.json does not hold")
    reading, by_id = stored.reading or COCO, context.notes["by id"]
    boxes = [_box(i, image, by_id.get(i), reading) for i in _targets(record["ann_id"])]
    if record.get("no_target") in (True, False) and record["no_target"] == bool(boxes):
        said = str(bool(boxes)).lower()
        raise ValueError(f"no_target is {said}, but ann_id names {len(boxes) or 'no'} targets")
    task = record.get("task") or stored.task
    if task not in ("grounding", "detection"):
        task = "detection" if len(boxes) > 1 else "grounding"
    if task == "grounding" and len(boxes) > 1:
        context.leave_out(MANY)
        return
    gold: Any = boxes[0] if boxes else None
    if task == "detection":
        gold = [{"Position": box, "Confidence": 1} for box in boxes]
    sentences = record["sentences"]
    listed = isinstance(sentences, list) and all(isinstance(item, dict) for item in sentences)
    if not sentences or not listed:
        raise ValueError(f"sentences is {str(sentences)[:80]}; a list of objects is needed")
    for sentence in sentences:
        phrase = text_in(sentence, "sent" if "sent" in sentence else "raw")
        yield {
            "image": file_of(image),
            "problem": (SEVERAL if task == "detection" else ONE).format(phrase),
            "solution": f"<answer>{gold}</answer>" if boxes else NO_OBJECTS,
            "task": task,
            "frame": "norm1000",
            "sent_id": str(sentence.get("sent_id", record["ref_id"])),
            "image_id": instances.column_of(record["image_id"]),
            "drawn": Drawn(image["width"], image["height"], f"image {record['image_id']}"),
        }


def _targets(ids: Any) -> list[Any]:
    """The ids of annotations, each once; none for [-1]."""
    ids = ids if isinstance(ids, list) else [ids]
    if not ids or any(isinstance(i, bool) or not isinstance(i, int) for i in ids):
        raise ValueError(f"ann_id is {str(ids)[:80]}; a list of ids is needed, [-1] for no target")
    if -1 in ids and len(ids) > 1:
        raise ValueError(f"ann_id is {str(ids)[:80]}: -1 (no target) stands beside targets")
    return [] if ids == [-1] else list(dict.fromkeys(ids))


def _box(
    number: Any, image: dict[str, Any], entry: dict[str, Any] | None, reading: units.Reading
) -> list[float]:
    """The box of an annotation of the image, in norm1000."""
    if entry is None or entry["image_id"] != image["id"]:
        raise ValueError(f"ann_id names {number!r}, which is no annotation of the image")
    if not four_numbers(entry.get("bbox")):
        raise ValueError(f"annotation {number} has no bbox of four numbers")
    size = image["width"], image["height"]
    box = units.clipped(units.corners(entry["bbox"], reading, size), size)
    if box is None:
        raise ValueError(f"annotation {number} has a bbox without area: {entry['bbox']}")
    return list(convert_box(box, "pixels", "norm1000", size=size))


def _matches(columns: set[str]) -> bool:
    known = {"ref_id", "image_id", "ann_id", "sentences"} <= columns
    return known and not {"problem", "solution"} <= columns


GREFCOCO_SCHEMA = RecordSchema("grefcoco", _matches, _rows, single=False, numbers="ann_id")
