"""ViRFT sets (Visual-RFT, arXiv 2503.01785): Parquet with the columns image, problem, solution.

    image     {"bytes": b"\\x89PNG...", "path": "000000001.png"}
    problem   "Detect all objects belonging to the category 'dog' in the image, and provide the
              bounding boxes (between 0 and 1000, integer) and confidence ..."
    solution  "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>"

Boxes are in norm1000: thousandths of the image's width and height.
"""

from collections.abc import Iterator

from swift_vlrft.datasets.schema import Context, RawExample, RecordSchema
from swift_vlrft.datasets.source import Source
from swift_vlrft.datasets.storage import Record

# What they hold: Visual-RFT's README, table of data sets.
DETECTION_SETS = {
    "ViRFT_COCO": "COCO, 80 categories, 6k rows",
    "ViRFT_COCO_base65": "COCO, the 65 base categories, 6k rows",
    "ViRFT_COCO_8_cate_4_shot": "COCO, 8 categories, 4 shots each",
    "ViRFT_LVIS_few_shot": "LVIS, 6 rare categories, few shots each",
}
CLASSIFICATION_SETS = {
    "ViRFT_CLS_flower_4_shot": "Flowers102, 102 species, 4 shots each",
    "ViRFT_CLS_fgvc_aircraft_4_shot": "FGVC-Aircraft, 100 models, 4 shots each",
    "ViRFT_CLS_car196_4shot": "Stanford Cars, 196 models, 4 shots each",
    "ViRFT_CLS_pets37_4shot": "Pets37, 37 breeds, 4 shots each",
}

VIRFT: tuple[Source, ...] = (
    *(
        Source(f"laolao77/{name}", "detection", "norm1000", about=about)
        for name, about in DETECTION_SETS.items()
    ),
    *(
        Source(f"laolao77/{name}", "classification", about=about)
        for name, about in CLASSIFICATION_SETS.items()
    ),
)


def _matches(columns: set[str]) -> bool:
    return {"image", "problem", "solution"} <= columns


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    yield record


VIRFT_SCHEMA = RecordSchema("virft", _matches, _rows)
