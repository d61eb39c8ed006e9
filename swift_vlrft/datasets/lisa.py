"""Visual-RFT stores LISA's reasoning grounding as JSON with image paths.

    {"image_path": "train/486.jpg", "instruction": ["the thing that keeps rain off"],
     "boxes": [[118.0, 40.0, 402.0, 371.0]]}

with boxes in pixels of the image. Each instruction is a row; of several boxes the first is the gold
one, as in Visual-RFT.
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.datasets.schema import (
    ANSWER_FORM,
    Context,
    RawExample,
    RecordSchema,
    box_of,
    further,
    text_in,
)
from swift_vlrft.datasets.storage import Record

PROMPT = (
    "Output the bounding box in the image corresponding to the instruction: {instruction}\n"
    "Give its top left and bottom right corner (between 0 and 1000, integer). "
    + ANSWER_FORM.format("(x1,y1),(x2,y2)")
)


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    texts = record["instruction"]
    texts = texts if isinstance(texts, list) else [texts]
    instructions = [text_in({"instruction": text}, "instruction") for text in texts or [None]]
    boxes = record["boxes"]
    if not isinstance(boxes, list) or not boxes or not isinstance(boxes[0], list):
        raise ValueError(f"boxes is {str(boxes)[:80]}; a list of [x1, y1, x2, y2] is needed")
    size = context.sides(record, "image_path")
    reading = context.reading("boxes", "image_path", list)
    if (box := box_of(boxes[0], reading, size)) is None:
        raise ValueError(f"the box {boxes[0]} has no area")
    x1, y1, x2, y2 = box
    row = further(record, "image_path", "instruction", "boxes")
    row |= {"image": record["image_path"], "task": "grounding", "frame": "norm1000"}
    row |= {"solution": f"<answer>({x1},{y1}),({x2},{y2})</answer>"}
    for instruction in instructions:
        yield row | {"problem": PROMPT.format(instruction=instruction)}


LISA_SCHEMA = RecordSchema(
    "lisa", {"image_path", "instruction", "boxes"}.issubset, _rows, single=False, numbers="boxes"
)
