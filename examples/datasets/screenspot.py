"""ScreenSpot (SeeClick, arXiv 2401.10935) pairs an instruction with the box of what to click.

    rootsautomation/ScreenSpot   {"image": ..., "instruction": "view the details of the item",
                                  "bbox": [0.48, 0.19, 0.96, 0.37]}: corners in shares of the sides
    ScreenSpot-v2                {"img_filename": "web_3b0ad239.png", "bbox": [42, 1102, 197, 70],
                                  "instruction": ...}: x, y, width, height in pixels
    ScreenSpot-Pro               {"img_filename": "mac/2024.png", "bbox": [1774, 1586, 2113, 1618],
                                  "instruction": ..., "img_size": [3840, 2160]}: corners in pixels

    vlrft data convert screenspot_web_v2.json data/clicks --root screenspotv2_image \\
        --external-plugins examples/datasets/screenspot.py

The columns are those of the cards on Hugging Face and of likaixin2000/ScreenSpot-Pro-GUI-Grounding;
no published file was at hand to read.
"""

from swift_vlrft.datasets.schemas import ANSWER_FORM, SCHEMAS, RecordSchema, further, text_in

PROMPT = (
    "Point at the place to click for this instruction: {instruction}\n"
    "Give the point (between 0 and 1000, integer). " + ANSWER_FORM
)
FORM = '[{"point_2d": [x, y]}]'


def matches(columns):
    known = {"instruction", "bbox"} <= columns and bool({"image", "img_filename"} & columns)
    return known and not {"problem", "solution"} <= columns


def rows(record, context):
    instruction, bbox = text_in(record, "instruction"), record["bbox"]
    image = record.get("image") or record.get("img_filename")
    if not isinstance(bbox, list) or len(bbox) != 4:
        raise ValueError(f"the bbox is {str(bbox)[:80]}; four numbers are needed")
    x1, y1, x2, y2 = bbox
    if max(bbox) <= 1:
        width, height = 1, 1
    elif "img_size" in record:
        width, height = record["img_size"]
    else:
        info = context.image_size(image)
        width, height = info.width, info.height
        x2, y2 = x1 + x2, y1 + y2
    if not 0 <= x1 < x2 <= width or not 0 <= y1 < y2 <= height:
        raise ValueError(f"the bbox {bbox} does not lie in an image of {width} x {height}")
    w, h = width / 1000, height / 1000
    box = [round(x1 / w), round(y1 / h), round(x2 / w), round(y2 / h)]
    yield further(record, "instruction", "bbox", "img_size", "img_filename", "id") | {
        "image": image,
        "problem": PROMPT.replace("{}", FORM).replace("{instruction}", instruction),
        "solution": f"<answer>{[box]}</answer>",
        "task": "pointing",
        "frame": "norm1000",
    }


SCHEMAS.insert(0, RecordSchema("screenspot", matches, rows, single=False))
