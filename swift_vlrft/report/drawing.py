"""Draw a sample: gold boxes white, predicted boxes or points blue, and a line on its score.

draw_sample(image, "<answer>[10, 10, 500, 500]</answer>", "<answer>No Objects</answer>", ...)
"""

from __future__ import annotations

from textwrap import wrap

from PIL import Image, ImageDraw, ImageFont

from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.parsing.answers import gold_text, read, read_boxes
from swift_vlrft.rewards import TASK_NAMES

SIDE = 336
LINE = 14
LINES = 5
MOST_BOXES = 200
BLUE = "#56b4e9"
FARTHEST = 1e4
"""The farthest place, in pixels, to which Pillow is asked to draw."""


def draw_sample(
    image: Image.Image,
    completion: str,
    solution: str,
    scores: dict[str, float],
    *,
    frame: str | None = None,
    task: str | None = None,
    seen: tuple[int | None, int | None] = (None, None),
) -> Image.Image:
    """Draw an RGB image, ``SIDE`` pixels wide, text below. ``seen``: what pixels refer to."""
    answer = read(completion)
    scale = SIDE / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    page = Image.new("RGB", (SIDE, height + LINE * LINES), "black")
    left = (SIDE - width) // 2
    page.paste(image.convert("RGB").resize((width, height)), (left, 0))
    pen = ImageDraw.Draw(page)
    if task in BOX_TASKS:
        stated = seen[0] or image.size[0], seen[1] or image.size[1]
        size = FORMATS.get(frame or "", FORMATS["norm1000"]).edges(stated)
        placed = answer.placed(points=TASK_NAMES[task].has_points)
        for drawn, colour in ((read_boxes(gold_text(solution)), "white"), (placed, BLUE)):
            for box in [box for box in drawn.boxes if box][:MOST_BOXES] if drawn else ():
                shares = [v / size[n % 2] * (width, height)[n % 2] for n, v in enumerate(box)]
                corners = [min(FARTHEST, max(-FARTHEST, v)) for v in shares]
                _draw(pen, (corners[0] + left, corners[1], corners[2] + left, corners[3]), colour)
    lines = [
        " ".join(f"{name.removeprefix('vlrft_')} {v:.2f}" for name, v in scores.items()),
        f"gold: {gold_text(solution)}",
        f"answer: {'(none)' if answer.text is None else answer.text}",
    ]
    # The font has a sign for ASCII alone; a model may write anything.
    plain = [line.encode("ascii", "replace").decode()[:300] for line in lines]
    text = [part for line in plain for part in wrap(line, 54)[:2]][:LINES]
    pen.rectangle((0, height, SIDE, page.size[1]), fill="black")
    font = ImageFont.load_default(11)
    pen.multiline_text((3, height), "\n".join(text), fill="white", font=font, spacing=3)
    return page


def _draw(
    pen: ImageDraw.ImageDraw, corners: tuple[float, float, float, float], colour: str
) -> None:
    if corners[:2] == corners[2:]:  # a point
        x, y = corners[:2]
        pen.ellipse((x - 5, y - 5, x + 5, y + 5), fill=colour, outline="black", width=2)
        return
    pen.rectangle(corners, outline="black", width=4)
    pen.rectangle(corners, outline=colour, width=2)
