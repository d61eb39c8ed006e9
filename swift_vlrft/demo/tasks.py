"""The demo's three data sets, each made on the spot in ViRFT form.

    colours    56 x 56, one shape               "What colour is the shape?"     red
    detection  112 x 112, one shape             "Find the shape"                [{'Position': ...
    digits     scikit-learn's handwritten ones  "Which digit is written here?"  seven

A row is (image, problem, solution); the problem never tells the answer. ``seen`` is what the
picture shows, in the words of the reasoning: the warm start learns to write it down, while its
answer is a guess (see ``guess``). What is left for GRPO to find is that the answer should say
what was seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image, ImageDraw

FORMAT = "Think in <think> </think>, then answer in <answer> </answer>."
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 220),
    "yellow": (230, 200, 40),
}
SHAPES = ("square", "circle", "triangle")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

Guess = Callable[[random.Random, str], str]


@dataclass(frozen=True)
class Row:
    image: Image.Image
    problem: str
    solution: str  # with its answer tags, as ViRFT stores it
    seen: str


@dataclass(frozen=True)
class DemoTask:
    """``make(rng, n)`` gives n rows; ``guess(rng, seen)`` the answer that the warm-started model
    gives instead.
    """

    name: str
    reward: str
    make: Callable[[random.Random, int], list[Row]]
    guess: Guess
    vocabulary: tuple[str, ...]
    train_rows: int
    held_out_rows: int
    warm_steps: int
    grpo_steps: int
    max_completion_length: int
    learning_rate: float


def _background(rng: random.Random, side: int) -> Image.Image:
    shade = rng.randint(90, 170)
    return Image.new("RGB", (side, side), (shade, shade, shade))


def _draw(
    image: Image.Image, rng: random.Random, colour: str, box: tuple[int, int, int, int]
) -> None:
    fill = tuple(max(0, min(255, v + rng.randint(-25, 25))) for v in COLOURS[colour])
    pen = ImageDraw.Draw(image)
    shape = rng.choice(SHAPES)
    x1, y1, x2, y2 = box
    if shape == "square":
        pen.rectangle((x1, y1, x2 - 1, y2 - 1), fill=fill)
    elif shape == "circle":
        pen.ellipse((x1, y1, x2 - 1, y2 - 1), fill=fill)
    else:
        pen.polygon([(x1, y2 - 1), ((x1 + x2) // 2, y1), (x2 - 1, y2 - 1)], fill=fill)


def _colour_rows(rng: random.Random, n: int) -> list[Row]:
    rows = []
    for _ in range(n):
        image = _background(rng, 56)
        colour = rng.choice(list(COLOURS))
        size = rng.randint(28, 48)
        x, y = rng.randint(0, 56 - size), rng.randint(0, 56 - size)
        _draw(image, rng, colour, (x, y, x + size, y + size))
        rows.append(
            Row(image, f"What colour is the shape? {FORMAT}", f"<answer>{colour}</answer>", colour)
        )
    return rows


def _digit_rows(rng: random.Random, n: int) -> list[Row]:
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = list(range(len(digits.images)))
    random.Random(0).shuffle(order)  # one fixed order, so that train and held-out rows never mix
    picked = [order[i] for i in _digit_slice(rng, n, len(order))]
    rows = []
    for i in picked:
        pixels = (digits.images[i] * (255 / 16)).astype(np.uint8)
        image = Image.fromarray(pixels).resize((56, 56), Image.Resampling.BILINEAR).convert("RGB")
        name = DIGITS[digits.target[i]]
        rows.append(
            Row(image, f"Which digit is written here? {FORMAT}", f"<answer>{name}</answer>", name)
        )
    return rows


def _digit_slice(rng: random.Random, n: int, total: int) -> range:
    """The last rows are held out, all others train; ``make`` is called for training first, then
    for the held-out ones.
    """
    return range(total - n, total) if n < total // 2 else range(n)


GRID = 250  # boxes lie on quarters of the side: 28 pixels of 112, one image token


def _detection_rows(rng: random.Random, n: int) -> list[Row]:
    rows: list[Row] = []
    for _ in range(n):
        image = _background(rng, 112)
        w, h = rng.randint(1, 3), rng.randint(1, 3)
        x, y = rng.randint(0, 4 - w), rng.randint(0, 4 - h)
        _draw(image, rng, rng.choice(list(COLOURS)), (x * 28, y * 28, (x + w) * 28, (y + h) * 28))
        box = tuple(v * GRID for v in (x, y, x + w, y + h))
        rows.append(
            Row(
                image,
                f"Find the shape, in coordinates from 0 to 1000. {FORMAT}",
                f"<answer>[{{'Position': {list(box)}, 'Confidence': 1}}]</answer>",
                ",".join(map(str, box)),
            )
        )
    return rows


def _guess_box(rng: random.Random, seen: str) -> str:
    """Each side of the box right in 3 of 10 cases, else a grid step too far out: also the likeliest
    answer is a box that is too large.
    """
    box = [int(text) for text in seen.split(",")]
    outward = [max(0, v - GRID) if side < 2 else min(1000, v + GRID) for side, v in enumerate(box)]
    guess = [v if rng.random() < 0.3 else far for v, far in zip(box, outward, strict=True)]
    return "[" + ",".join(map(str, guess)) + "]"


def _one_of(names: tuple[str, ...]) -> Guess:
    return lambda rng, seen: rng.choice(names)


TASKS: dict[str, DemoTask] = {
    "colours": DemoTask(
        "colours",
        "vlrft_classification",
        _colour_rows,
        _one_of(tuple(COLOURS)),
        tuple(COLOURS),
        train_rows=512,
        held_out_rows=64,
        warm_steps=120,
        grpo_steps=50,
        max_completion_length=12,
        learning_rate=5e-4,
    ),
    "digits": DemoTask(
        "digits",
        "vlrft_classification",
        _digit_rows,
        _one_of(DIGITS),
        DIGITS,
        train_rows=1597,
        held_out_rows=200,
        warm_steps=400,
        grpo_steps=40,
        max_completion_length=12,
        learning_rate=5e-4,
    ),
    "detection": DemoTask(
        "detection",
        "vlrft_detection_iou",
        _detection_rows,
        _guess_box,
        tuple(COLOURS),
        train_rows=2048,
        held_out_rows=64,
        warm_steps=400,
        grpo_steps=70,
        max_completion_length=28,
        learning_rate=2e-4,
    ),
}


def known_task(name: str) -> DemoTask:
    if name not in TASKS:
        raise ValueError(f"unknown demo task {name!r}; known: {', '.join(TASKS)}")
    return TASKS[name]
