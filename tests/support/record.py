"""A second plugin that registers the reward ``record``: what reaches a reward, one JSON line per
completion.
"""

import hashlib
import io
import json
import os

from PIL import Image
from swift.rewards import orms


def _pixels_digest(image: object) -> str:
    if isinstance(image, dict):
        image = Image.open(io.BytesIO(image["bytes"]) if image.get("bytes") else image["path"])
    assert isinstance(image, Image.Image)
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()


def record(completions, **columns):
    with open(os.environ["VLRFT_TEST_RECORD"], "a") as out:
        for i, completion in enumerate(completions):
            row = {name: columns[name][i] for name in ("solution", "task", "frame")}
            (row["prompt"],) = [m["content"] for m in columns["messages"][i] if m["role"] == "user"]
            row["image"] = _pixels_digest(columns["images"][i][0])
            out.write(json.dumps(row | {"completion": completion}) + "\n")
    return [0.0] * len(completions)


orms["record"] = lambda args=None, **_: record
