"""Draw the rows of `vlrft demo`, on which it runs the trial of `vlrft try`."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from swift_vlrft.datasets.writer import write_folder

FORMAT = "Think in <think> </think>, then answer in <answer> </answer>."
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 220),
    "yellow": (230, 200, 40),
}
SHAPES = ("square", "circle", "triangle")
# With twice the rate, where a shape is was not seen in the same steps.
TRIAL: dict[str, Any] = {"side": 56, "warm_steps": 240, "warm_rate": 1e-3}
"""Fields of ``TrialConfig`` for the set of ``write_drawn``."""


@dataclass(frozen=True)
class Row:
    image: Image.Image
    problem: str
    solution: str  # with its answer tags, as ViRFT stores it
    columns: dict[str, Any] = field(default_factory=dict)


def stored(row: Row) -> dict[str, Any]:
    """Return the row as a set on disk holds it."""
    buffer = io.BytesIO()
    row.image.save(buffer, "PNG")
    image = {"bytes": buffer.getvalue(), "path": None}
    return {"image": image, "problem": row.problem, "solution": row.solution, **row.columns}


def grey(rng: random.Random, side: int) -> Image.Image:
    """Return an empty picture of some grey."""
    return Image.new("RGB", (side, side), (rng.randint(90, 170),) * 3)


def draw(
    image: Image.Image, rng: random.Random, colour: str, box: tuple[int, int, int, int]
) -> None:
    """Draw a shape that fills ``box``."""
    fill = tuple(max(0, min(255, v + rng.randint(-25, 25))) for v in COLOURS[colour])
    pen, shape = ImageDraw.Draw(image), rng.choice(SHAPES)
    x1, y1, x2, y2 = box[0], box[1], box[2] - 1, box[3] - 1
    if shape == "square":
        pen.rectangle((x1, y1, x2, y2), fill=fill)
    elif shape == "circle":
        pen.ellipse((x1, y1, x2, y2), fill=fill)
    else:
        pen.polygon([(x1, y2), ((x1 + x2 + 1) // 2, y1), (x2, y2)], fill=fill)


def colour_rows(rng: random.Random, n: int) -> list[Row]:
    """Draw ``n`` pictures of one shape, whose colour is asked for."""
    rows = []
    for _ in range(n):
        image, colour, size = grey(rng, 56), rng.choice(list(COLOURS)), rng.randint(28, 48)
        x, y = rng.randint(0, 56 - size), rng.randint(0, 56 - size)
        draw(image, rng, colour, (x, y, x + size, y + size))
        text = f"What colour is the shape? {FORMAT}"
        rows.append(Row(image, text, f"<answer>{colour}</answer>"))
    return rows


def write_drawn(folder: Path, seed: int = 0) -> None:
    """Write the set of the demo: 512 rows to train on, when a fifth is held out."""
    write_folder(folder, {"train": map(stored, colour_rows(random.Random(seed), 640))})
