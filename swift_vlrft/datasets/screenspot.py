"""ScreenSpot (SeeClick, arXiv 2401.10935) pairs an instruction with the box of what to click.

As rootsautomation/ScreenSpot has it, Parquet with corners in shares of the image's sides:

    image        {"bytes": b"\\x89PNG...", "path": "mobile_0.png"}
    instruction  "view the details of the item"
    bbox         [0.48, 0.19, 0.96, 0.37]
    file_name, data_type ("text" or "icon"), data_source ("ios")

lmms-lab/ScreenSpot-v2 has the same columns with x, y, width, height in pixels, as SeeClick's and
OS-Copilot/ScreenSpot-v2's JSON have them:

    {"img_filename": "web_3b0ad239-da6b-4f6f-8f12-f674dc90ff33.png", "bbox": [42, 1102, 197, 70],
     "instruction": "view the details of the item", "data_type": "text", "data_source": "shop"}

As ScreenSpot-Pro has it (likaixin's JSON and lmms-lab's Parquet), with corners in pixels of an
image whose size it states:

    {"img_filename": "android_studio_mac/screenshot_2024-11-28_15-16-55.png",
     "bbox": [1774, 1586, 2113, 1618], "instruction": "modify the highlights of the photo ...",
     "img_size": [3840, 2160], "id": "android_studio_macos_0", "application": "android_studio",
     "platform": "macos", "ui_type": "icon", "group": "Dev", "instruction_cn": "..."}

Columns and records are those of the dataset cards, of open-compass/VLMEvalKit's ScreenSpot and of
likaixin2000/ScreenSpot-Pro-GUI-Grounding's evaluation, which says that its boxes are corners; no
published file was at hand to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from swift_vlrft.datasets import units
from swift_vlrft.datasets.row import Drawn
from swift_vlrft.datasets.schema import (
    ANSWER_FORM,
    Context,
    RawExample,
    RecordSchema,
    drawn_on,
    four_numbers,
    further,
    text_in,
)
from swift_vlrft.datasets.storage import Record
from swift_vlrft.datasets.units import PictureSize, Reading
from swift_vlrft.geometry.box_format import convert_box

PROMPT = (
    "Point at the place to click for this instruction: {instruction}\n"
    "Give the point (between 0 and 1000, integer). " + ANSWER_FORM
)
FORM = '[{"point_2d": [x, y]}]'
COLUMNS = ("bbox", "img_size", "image", "img_filename")
FOLDERS = ("images", "screenspot_imgs", "screenspotv2_image")
"""Where people unpack the archives of images."""


def _matches(columns: set[str]) -> bool:
    known = {"instruction", "bbox"} <= columns and {"image", "img_filename"} & columns
    return bool(known) and not {"problem", "solution"} <= columns


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    instruction, bbox = text_in(record, "instruction"), record["bbox"]
    if not four_numbers(bbox):
        raise ValueError(f"the bbox is {str(bbox)[:80]}; four numbers are needed")
    image = _image(record, context)
    reading = context.reading(COLUMNS, _boxes_of(context), _among(record))
    drawn, size = None, (1, 1)
    in_shares = reading.unit == "unit"
    if not in_shares and (sides := record.get("img_size")) is not None:
        drawn = _stated(sides)
        if drawn is None:
            raise ValueError(f"the img_size is {str(sides)[:80]}; width and height are needed")
        size = round(drawn.width), round(drawn.height)
    elif not in_shares:
        info = context.image_info(image)
        size = info.width, info.height
    corners = x1, y1, x2, y2 = units.corners(bbox, reading, size)
    unit = 0.001 if in_shares else 1
    wrong = "has no area" if x2 <= x1 or y2 <= y1 else ""
    if min(x1, y1) < -unit or x2 > size[0] + unit or y2 > size[1] + unit:
        wrong = wrong or f"reaches beyond the image of {size[0]} x {size[1]}"
    if wrong:
        raise ValueError(
            f"the bbox {bbox}, {reading}, {wrong}; if it is meant otherwise, "
            "use --boxes and --unit of vlrft data convert"
        )
    box = convert_box(corners, "unit" if in_shares else "pixels", "norm1000", size=size)
    example: RawExample = {} if drawn is None else {"drawn": drawn}
    yield (
        example
        | further(record, "instruction", "bbox", "img_size", "img_filename", "id")
        | {
            "image": image,
            "problem": PROMPT.replace("{}", FORM).replace("{instruction}", instruction),
            "solution": f"<answer>{[list(box)]}</answer>",
            "task": "pointing",
            "frame": "norm1000",
        }
    )


def _image(record: Record, context: Context) -> Any:
    """The image that is stored, or the file that the record names."""
    image = record["image"] if record.get("image") else record.get("img_filename")
    if isinstance(image, str) and not image.startswith("data:"):
        return context.image_file([image], FOLDERS)
    return image


def _stated(sides: Any) -> Drawn | None:
    pair = sides if isinstance(sides, list) else []
    return drawn_on(dict(zip(("width", "height"), pair, strict=False)), exact=True)


def _among(record: Record) -> list[Reading]:
    """What the numbers may be, by the form of the set's first record."""
    if max(record["bbox"]) <= 1:
        return [Reading("xyxy", "unit")]
    return [Reading("xywh" if record.get("img_size") is None else "xyxy")]


def _boxes_of(context: Context) -> Callable[[Record], tuple[list[Any], PictureSize | None]]:
    def boxes_of(record: Record) -> tuple[list[Any], PictureSize | None]:
        if drawn := _stated(record.get("img_size")):
            return [record["bbox"]], (drawn.width, drawn.height)
        return [record["bbox"]], context.size_of(_image(record, context))

    return boxes_of


SCREENSPOT_SCHEMA = RecordSchema(
    "screenspot", _matches, _rows, single=False, in_parts=True, numbers="bbox"
)
