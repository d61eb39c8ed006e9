"""ViRFT sets (Visual-RFT, arXiv 2503.01785): Parquet with image, problem, solution.

    image     {"bytes": b"\\x89PNG...", "path": "000000001.png"}
    problem   "Detect all objects belonging to the category 'dog' in the image, and provide the
              bounding boxes (between 0 and 1000, integer) and confidence ..."
    solution  "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>"

Boxes are in norm1000: thousandths of the image's width and height. These columns say what a row
is, whatever lies beside them; all others are kept.
"""

from collections.abc import Iterator

from swift_vlrft.datasets.schema import EXPLICIT, Context, RawExample, RecordSchema
from swift_vlrft.datasets.storage import Record


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    yield record


VIRFT_SCHEMA = RecordSchema("virft", EXPLICIT.issubset, _rows)
