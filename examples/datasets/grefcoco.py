"""gRefCOCO (Liu et al., CVPR 2023) has phrases for one object, for several, and for none.

grefs(unc).json, a list, beside the boxes in COCO's instances.json:

    {"image_id": 581857, "split": "train", "ann_id": [-1], "ref_id": 7,
     "sentences": [{"sent_id": 21, "sent": "the dog on the sofa"}]}

    GREF_SPLIT=testA vlrft data convert "grefs(unc).json" data/testA --root train2014 \\
        --external-plugins examples/datasets/grefcoco.py

``ann_id`` names annotations of instances.json; [-1] is a phrase that names nothing in its image. A
sentence with one target or none is a row of grounding, in one prompt, so that the prompt does not
tell; with several it is one of detection. Phrases of other splits than GREF_SPLIT (train) make no
row. The keys are those that henghuiding/gRefCOCO's own conversion reads; no published file was at
hand to read.
"""

import json
import os
from functools import cache

from swift_vlrft.datasets.schemas import ANSWER_FORM, SCHEMAS, RecordSchema, text_in

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


@cache
def instances(folder):
    """The images and the annotations of instances.json, by id."""
    with open(folder / "instances.json") as file:
        content = json.load(file)
    return [{entry["id"]: entry for entry in content[key]} for key in ("images", "annotations")]


def rows(record, context):
    if (split := record.get("split", "train")) != os.environ.get("GREF_SPLIT", "train"):
        context.leave_out(f"a phrase of the split {split} makes no row")
        return
    images, annotations = instances(context.stored.folder)
    image = images[record["image_id"]]
    ids = record["ann_id"] if isinstance(record["ann_id"], list) else [record["ann_id"]]
    boxes = [box_of(annotations[i], image) for i in dict.fromkeys(ids) if ids != [-1]]
    several = len(boxes) > 1
    gold = [{"Position": box, "Confidence": 1} for box in boxes] if several else (*boxes, None)[0]
    for sentence in record["sentences"]:
        yield {
            "image": image["file_name"],
            "problem": (SEVERAL if several else ONE).format(text_in(sentence, "sent")),
            "solution": f"<answer>{gold or 'No Objects'}</answer>",
            "task": "detection" if several else "grounding",
            "frame": "norm1000",
            "sent_id": str(sentence["sent_id"]),
            "image_id": record["image_id"],
        }


def box_of(annotation, image):
    """The corners of an annotation of the image, in thousandths."""
    if annotation["image_id"] != image["id"]:
        raise ValueError(f"annotation {annotation['id']} is of another image")
    (x, y, width, height), w, h = annotation["bbox"], image["width"] / 1000, image["height"] / 1000
    return [round(x / w), round(y / h), round((x + width) / w), round((y + height) / h)]


def matches(columns):
    known = {"ref_id", "image_id", "ann_id", "sentences"} <= columns
    return known and not {"problem", "solution"} <= columns


SCHEMAS.insert(0, RecordSchema("grefcoco", matches, rows, single=False))
