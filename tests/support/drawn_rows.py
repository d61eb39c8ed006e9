"""Rows with drawn images, as ViRFT stores them: boxes alone, and tasks of every form in one set.

    python -m tests.support.drawn_rows FOLDER 300 640 480    # 300 boxed rows as a COCO file

112 x 112, one shape
boxed_rows   "Find the shape"                        [{'Position': [250, 0, 500, 250], ...}]

112 x 112, two or three shapes of different colours
grounding    "Where is the red shape?"               (250,0),(500,250) or No Objects
pointing     "Point at every shape that is red."     [[250, 0, 500, 250]] or No Objects
detection    "Find every shape."                     [[250, 0, 500, 250], [500, 0, 750, 250]]
counting     "How many shapes are there?"            2
list         "Which colours are there?"              ["red", "blue"]
ordering     "Name the colours from left to right."  ["blue", "red"]

112 x 112, a line of text
ocr          "What is written here?"                 Gate 7
number       "Which amount is written here?"         12.5, with the column tolerance
"""

import json
import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from swift_vlrft.demo.rows import COLOURS, FORMAT, Row, draw, grey

WORDS = ("Exit", "Gate", "Room", "Hôtel", "Track", "Floor")
MIXED = ("grounding", "pointing", "list", "ordering", "ocr", "number")
"""The tasks of ``mixed_rows``."""
FIVE = ("detection", "grounding", "counting", "ocr", "pointing")
"""The tasks of qwen3_vl_4b/mixed_4x80g.sh."""
GRID = 250  # boxes lie on quarters of the side: 28 pixels of 112, one image token


def boxed_rows(rng: random.Random, n: int) -> list[Row]:
    """``n`` rows of detection, boxes in thousandths."""
    rows = []
    for _ in range(n):
        image, w, h = grey(rng, 112), rng.randint(1, 3), rng.randint(1, 3)
        x, y = rng.randint(0, 4 - w), rng.randint(0, 4 - h)
        corners = (x * 28, y * 28, (x + w) * 28, (y + h) * 28)
        draw(image, rng, rng.choice(list(COLOURS)), corners)
        box = [v * GRID for v in (x, y, x + w, y + h)]
        asked = (
            "Find the shape as [x1, y1, x2, y2], with Confidence, in coordinates from 0 to 1000."
        )
        solution = f"<answer>[{{'Position': {box}, 'Confidence': 1}}]</answer>"
        rows.append(Row(image, f"{asked} {FORMAT}", solution))
    return rows


def write_coco(folder: Path, n: int, size: tuple[int, int] = (112, 112)) -> Path:
    """Write ``boxed_rows`` as somebody's COCO file, a box a picture, enlarged to ``size``."""
    folder.mkdir(parents=True, exist_ok=True)
    images, boxes = [], []
    for i, row in enumerate(boxed_rows(random.Random(0), n), 1):
        row.image.resize(size).save(folder / f"{i}.png")
        images.append({"id": i, "file_name": f"{i}.png", "width": size[0], "height": size[1]})
        corners = json.loads(row.solution[8:-9].replace("'", '"'))[0]["Position"]
        x1, y1, x2, y2 = (v * side // 1000 for v, side in zip(corners, size * 2, strict=True))
        box = {"id": i, "image_id": i, "category_id": 1, "iscrowd": 0}
        boxes.append(box | {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)})
    categories = [{"id": 1, "name": "shape"}]
    content = {"images": images, "annotations": boxes, "categories": categories}
    (folder / "instances_train.json").write_text(json.dumps(content))
    return folder / "instances_train.json"


def mixed_rows(rng: random.Random, n: int, tasks: tuple[str, ...] = MIXED) -> list[Row]:
    """``n`` rows, of each task in turn."""
    return [_row(rng, tasks[i % len(tasks)]) for i in range(n)]


def _row(rng: random.Random, task: str) -> Row:
    image, columns = grey(rng, 112), {"task": task}
    if task in ("ocr", "number"):
        solution = f"{rng.choice(WORDS)} {rng.randint(1, 99)}"
        question = "What is written here?"
        if task == "number":
            solution, question = f"{rng.randint(1, 999) / 10}", "Which amount is written here?"
            columns["tolerance"] = rng.choice(["0", "0.05"])
        _write(image, rng, f"$ {solution}" if task == "number" else solution)
    else:
        boxes = _scene(image, rng)
        asked = rng.choice(list(COLOURS))
        found = [boxes[asked]] if asked in boxes else []
        one = str(found[0] if found else "No Objects")
        question, solution = {
            "detection": ("Find every shape, as [[x1, y1, x2, y2], ...].", str([*boxes.values()])),
            "counting": ("How many shapes are there?", str(len(boxes))),
            "grounding": (f"Where is the {asked} shape, as [x1, y1, x2, y2]?", one),
            "pointing": (f"Point at every shape that is {asked}.", str(found or "No Objects")),
            "list": ("Which colours are there?", json.dumps(sorted(boxes))),
            "ordering": ("Name the colours from left to right.", json.dumps(list(boxes))),
        }[task]
        if task in ("detection", "grounding", "pointing"):
            question += " Coordinates are from 0 to 1000. If there is none, say No Objects."
    return Row(image, f"{question} {FORMAT}", f"<answer>{solution}</answer>", columns)


def _scene(image: Image.Image, rng: random.Random) -> dict[str, list[int]]:
    """Draw shapes in columns of their own; their boxes in thousandths by colour, from the left."""
    boxes = {}
    count = rng.randint(2, 3)
    places = sorted(rng.sample(range(4), count))
    for x, colour in zip(places, rng.sample(list(COLOURS), count), strict=True):
        y = rng.randint(0, 3)
        draw(image, rng, colour, (x * 28, y * 28, (x + 1) * 28, (y + 1) * 28))
        boxes[colour] = [v * GRID for v in (x, y, x + 1, y + 1)]
    return boxes


def _write(image: Image.Image, rng: random.Random, text: str) -> None:
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(20)
    pen.text((rng.randint(2, 8), rng.randint(4, 80)), text, fill="white", font=font)


if __name__ == "__main__":
    count, width, height = map(int, sys.argv[2:])
    print(write_coco(Path(sys.argv[1]), count, (width, height)))
