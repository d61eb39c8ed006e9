"""ScreenSpot (SeeClick, arXiv 2401.10935): an instruction, and the box of what to click.

As rootsautomation/ScreenSpot has it, Parquet with corners in shares of the image's sides:

    image        {"bytes": b"\\x89PNG...", "path": "mobile_0.png"}
    instruction  "view the details of the item"
    bbox         [0.48, 0.19, 0.96, 0.37]
    file_name, data_type ("text" or "icon"), data_source ("ios")

As SeeClick's and ScreenSpot-v2's JSON has it, with x, y, width, height in pixels:

    {"img_filename": "pc_0.png", "bbox": [67, 14, 190, 60], "instruction": "close the window",
     "data_type": "icon", "data_source": "windows"}

As ScreenSpot-Pro's JSON has it, with corners in pixels of an image whose size it states:

    {"img_filename": "vscode_mac/0.png", "bbox": [2550, 145, 2605, 180], "instruction": "run it",
     "img_size": [3840, 2160], "application": "vscode", "ui_type": "icon", "id": "vscode_mac_0"}

The columns are written from knowledge of these sets; no published file was at hand to compare.
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.datasets.schema import (
    ANSWER_FORM,
    Context,
    RawExample,
    RecordSchema,
    drawn_on,
    four_numbers,
    text_in,
)
from swift_vlrft.datasets.storage import Record
from swift_vlrft.geometry.box_format import convert_box

PROMPT = (
    "Point at the place to click for this instruction: {instruction}\n"
    "Give the point (between 0 and 1000, integer). " + ANSWER_FORM
)
FORM = '[{"point_2d": [x, y]}]'
FURTHER = ("data_type", "data_source", "application", "platform", "ui_type")


def _matches(columns: set[str]) -> bool:
    known = {"instruction", "bbox"} <= columns and {"image", "img_filename"} & columns
    return bool(known) and not {"problem", "solution"} <= columns


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    instruction, given, size = text_in(record, "instruction"), record["bbox"], (1, 1)
    if not four_numbers(given):
        raise ValueError(f"the bbox is {str(given)[:80]}; four numbers are needed")
    image = record["image"] if record.get("image") else record.get("img_filename")
    x1, y1, x2, y2 = given
    in_shares, drawn = "image" in record and max(given) <= 1, None
    if not in_shares and (sides := record.get("img_size")) is not None:
        pair = sides if isinstance(sides, list) else []
        drawn = drawn_on(dict(zip(("width", "height"), pair, strict=False)), exact=True)
        if drawn is None:
            raise ValueError(f"the img_size is {str(sides)[:80]}; width and height are needed")
        size = round(drawn.width), round(drawn.height)
    elif not in_shares and "image" in record:
        raise ValueError(f"the bbox {given} is not in shares of 0 to 1, and no img_size is stated")
    elif not in_shares:
        info = context.image_info(image)
        size, x2, y2 = (info.width, info.height), x1 + x2, y1 + y2
    if x2 <= x1 or y2 <= y1:
        raise ValueError(f"the bbox {given} has no area")
    unit = 0.001 if in_shares else 1
    if min(x1, y1) < -unit or x2 > size[0] + unit or y2 > size[1] + unit:
        raise ValueError(f"the bbox {given} reaches beyond the image of {size[0]} x {size[1]}")
    before = "unit" if in_shares else "pixels"
    box = convert_box((x1, y1, x2, y2), before, "norm1000", size=size)
    made: RawExample = {} if drawn is None else {"drawn": drawn}
    made |= {name: record[name] for name in FURTHER if name in record}
    yield made | {
        "image": image,
        "problem": PROMPT.replace("{}", FORM).replace("{instruction}", instruction),
        "solution": f"<answer>{[list(box)]}</answer>",
        "task": "pointing",
        "frame": "norm1000",
    }


SCREENSPOT_SCHEMA = RecordSchema("screenspot", _matches, _rows, single=False)
