"""Draw rows of five tasks in one set, by the column ``task``, easy enough for a tiny model.

56 x 56, shapes in quarters of it, or one letter

detection    "Find the shape."                       [[0, 500, 500, 1000]]
grounding    "Where is the red shape?"               [0, 500, 500, 1000] or No Objects
counting     "How many shapes are there?"            2
ocr          "Which letter is written here?"         X
pointing     "Point at the shape."                   [[0, 500, 500, 1000]], answered [250, 750]
"""

from __future__ import annotations

import random

from PIL import ImageDraw, ImageFont

from swift_vlrft.demo.rows import COLOURS, FORMAT, Row, draw, grey

LETTERS = "LOTX"
HALF = 500
"""Half a side of the picture, in thousandths."""
QUESTIONS = {
    "detection": "Find the shape, as [[x1, y1, x2, y2]].",
    "grounding": "Where is the {colour} shape? As [x1, y1, x2, y2], or No Objects.",
    "counting": "How many shapes are there?",
    "ocr": "Which letter is written here?",
    "pointing": "Point at the shape, as [x, y].",
}
"""What each task of ``demo_rows`` asks."""


def demo_rows(rng: random.Random, n: int) -> list[Row]:
    """Draw ``n`` rows of all tasks in turn."""
    # Letters are the hardest to see: two rows in six.
    tasks = ["ocr", *QUESTIONS]
    return [_demo_row(rng, tasks[i % len(tasks)]) for i in range(n)]


def _demo_row(rng: random.Random, task: str) -> Row:
    image, colour = grey(rng, 56), rng.choice(list(COLOURS))
    if task == "ocr":
        solution = rng.choice(LETTERS)
        place = rng.randint(10, 16), rng.randint(-8, -4)
        ImageDraw.Draw(image).text(place, solution, fill="white", font=ImageFont.load_default(52))
    else:
        count = rng.randint(1, 3) if task == "counting" else 1
        cells = rng.sample([(x, y) for y in range(2) for x in range(2)], count)
        for (x, y), shown in zip(cells, rng.sample(list(COLOURS), count), strict=True):
            draw(image, rng, shown, (x * 28, y * 28, (x + 1) * 28, (y + 1) * 28))
            drawn = shown
        (x, y), *_ = cells
        box = [x * HALF, y * HALF, (x + 1) * HALF, (y + 1) * HALF]
        if task == "grounding" and rng.random() < 0.7:
            colour = drawn
        solution = {
            "counting": str(count),
            "grounding": _written(box) if colour == drawn else "No Objects",
        }.get(task, f"[{_written(box)}]")
    question = QUESTIONS[task].format(colour=colour)
    if task in ("detection", "grounding", "pointing"):
        question += " Coordinates are from 0 to 1000."
    answer = f"<answer>{solution}</answer>"
    return Row(image, f"{question} {FORMAT}", answer, {"task": task})


def _written(numbers: list[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
