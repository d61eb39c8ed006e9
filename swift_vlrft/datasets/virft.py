"""ViRFT sets (Visual-RFT, arXiv 2503.01785): Parquet with the columns image, problem, solution.

    image     {"bytes": b"\\x89PNG...", "path": "000000001.png"}
    problem   "Detect all objects belonging to the category 'dog' in the image, and provide the
              bounding boxes (between 0 and 1000, integer) and confidence ..."
    solution  "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>"

Boxes are in norm1000: thousandths of the image's width and height.
"""

from collections.abc import Iterator

from swift_vlrft.datasets.forms import Record
from swift_vlrft.datasets.shape import Context, Draft, Shape
from swift_vlrft.datasets.source import Source

DETECTION_SETS = (
    "ViRFT_COCO",
    "ViRFT_COCO_base65",
    "ViRFT_COCO_8_cate_4_shot",
    "ViRFT_LVIS_few_shot",
)
CLASSIFICATION_SETS = (
    "ViRFT_CLS_flower_4_shot",
    "ViRFT_CLS_fgvc_aircraft_4_shot",
    "ViRFT_CLS_car196_4shot",
    "ViRFT_CLS_pets37_4shot",
)

VIRFT: tuple[Source, ...] = (
    *(Source(f"laolao77/{name}", "detection", "norm1000") for name in DETECTION_SETS),
    *(Source(f"laolao77/{name}", "classification") for name in CLASSIFICATION_SETS),
)


def _matches(columns: set[str]) -> bool:
    return {"image", "problem", "solution"} <= columns


def _rows(record: Record, context: Context) -> Iterator[Draft]:
    yield record


VIRFT_SHAPE = Shape("virft", _matches, _rows)
