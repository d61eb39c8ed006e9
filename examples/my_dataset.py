"""Records that nobody else has, as a plugin file: it adds a form for them, and a reward that uses
a column of their own.

    {"photo": "shelf/17.jpg", "ask": "the red mug", "rect": [120, 40, 310, 260], "least": 0.7}

    swift rlhf ... --external_plugins examples/my_dataset.py "$(vlrft plugin)" \\
        --dataset shelf.jsonl:pixels --reward_funcs close_enough vlrft_format

It stands before our plugin, which then knows the form.
"""

from swift.rewards import orms

from swift_vlrft import REWARDS
from swift_vlrft.datasets import record_form


@record_form("photo", "ask", "rect", "least")
def shelf(record, context):
    """One grounding row per record; a ValueError says what is wrong with it."""
    if len(record["rect"]) != 4:
        raise ValueError(f"rect is {record['rect']}, four numbers are needed")
    if not isinstance(record["least"], (int, float)):
        raise ValueError(f"least is {record['least']!r}, a number from 0 to 1 is needed")
    yield {
        "image": record["photo"],
        "problem": f"Where is {record['ask']}? Answer with [x1, y1, x2, y2] in <answer> tags.",
        "solution": f"<answer>{list(record['rect'])}</answer>",
        "task": "grounding",
        "frame": "pixels",  # of the image as it is stored
        "least": record["least"],  # any further column reaches the rewards by its name
    }


def close_enough(completions, solution, least, **columns):
    """1 if the box overlaps the gold as much as its own row asks for."""
    overlaps = REWARDS["vlrft_grounding_iou"](completions, solution, **columns)
    pairs = zip(overlaps, least, strict=True)
    return [None if iou is None else float(iou >= wanted) for iou, wanted in pairs]


orms["close_enough"] = lambda args=None, **kwargs: close_enough
