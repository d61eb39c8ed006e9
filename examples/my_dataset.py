"""Records that nobody else has, as a plugin file: read before ours, it adds a schema.

    {"photo": "shelf/17.jpg", "ask": "the red mug", "rect": [120, 40, 310, 260]}

swift rlhf ... --external_plugins my_dataset.py "$(vlrft plugin)" --dataset shelf.jsonl:pixels
"""

from swift_vlrft.datasets.schema import RecordSchema
from swift_vlrft.datasets.schemas import SCHEMAS


def matches(columns):
    """Whether records with these columns are of this kind."""
    return {"photo", "ask", "rect"} <= columns


def rows(record, context):
    """One grounding row per record; a ValueError says what is wrong with it."""
    if len(record["rect"]) != 4:
        raise ValueError(f"rect is {record['rect']}, four numbers are needed")
    yield {
        "image": record["photo"],
        "problem": f"Where is {record['ask']}? Answer with [x1, y1, x2, y2] in <answer> tags.",
        "solution": f"<answer>{list(record['rect'])}</answer>",
        "task": "grounding",
        "frame": "pixels",  # of the image as it is stored
    }


SCHEMAS.insert(0, RecordSchema("shelf", matches, rows))
