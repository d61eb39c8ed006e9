"""The demo's tasks: a data set, made on the spot in ViRFT form, and a tiny model.

    colours  56 x 56, one shape        "What colour is the shape?"     red
    coins    windows of a photograph   "Find the coin that is whole"   [{'Position': ...
    mixed    five tasks in one set     "How many shapes are there?"    2

The prompt never tells the answer. ``seen`` is what the image shows, in the words of the reasoning:
the warm start learns to write it down, while its answer is a guess. What is left for GRPO to find
is that the answer should say what was seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PIL import Image

from swift_vlrft.demo.mixed import demo_guess, demo_rows
from swift_vlrft.demo.rows import COLOURS, FORMAT, Row, draw, grey
from swift_vlrft.rewards import REWARDS

COIN_GRID = 50  # what a coin's box is rounded to where it is written down as seen

Guess = Callable[[random.Random, str], str]


@dataclass(frozen=True)
class DemoTask:
    """``rows(rng, n, held_out)`` makes rows; ``guess(rng, seen)``: the answer before training."""

    name: str
    rows: Callable[[random.Random, int, bool], list[Row]]
    guess: Guess
    vocabulary: tuple[str, ...]
    train_rows: int
    held_out_rows: int
    warm_steps: int
    grpo_steps: int
    rewards: tuple[str, ...] = ("vlrft_classification",)
    side: int = 56  # of the images as the model sees them, in pixels
    max_completion_length: int = 12
    learning_rate: float = 5e-4
    warm_learning_rate: float = 2e-3

    def make(self, rng: random.Random, n: int, *, held_out: bool = False) -> list[Row]:
        return self.rows(rng, n, held_out)

    def scores(self, rows: list[Row], answers: list[str]) -> list[float]:
        """Of each row, by the reward of its task."""
        solutions = [row.solution for row in rows]
        kinds = [self.kind_of(row) for row in rows]
        found = [REWARDS[name](answers, solutions, task=kinds) for name in self.rewards]
        return [sum(score or 0.0 for score in of_row) for of_row in zip(*found, strict=True)]

    def kind_of(self, row: Row) -> str:
        return str(row.columns.get("task", self.kinds[0]))

    @property
    def kinds(self) -> list[str]:
        """The tasks of its rows: detection, classification, ..."""
        return [task.name for name in self.rewards if (task := REWARDS[name].task) is not None]


def _named(image: Image.Image, question: str, name: str) -> Row:
    return Row(image, f"{question} {FORMAT}", f"<answer>{name}</answer>", name)


def _boxed(image: Image.Image, what: str, box: Sequence[int], seen: Sequence[int]) -> Row:
    return Row(
        image,
        f"Find {what}, in coordinates from 0 to 1000. {FORMAT}",
        f"<answer>[{{'Position': {list(box)}, 'Confidence': 1}}]</answer>",
        ",".join(map(str, seen)),
    )


def _colour_rows(rng: random.Random, n: int, held_out: bool) -> list[Row]:
    rows = []
    for _ in range(n):
        image, colour, size = grey(rng, 56), rng.choice(list(COLOURS)), rng.randint(28, 48)
        x, y = rng.randint(0, 56 - size), rng.randint(0, 56 - size)
        draw(image, rng, colour, (x, y, x + size, y + size))
        rows.append(_named(image, "What colour is the shape?", colour))
    return rows


def _coin_rows(rng: random.Random, n: int, held_out: bool) -> list[Row]:
    from swift_vlrft.demo.coins import windows

    return [
        _boxed(
            image, "the coin that is whole", box, [COIN_GRID * round(v / COIN_GRID) for v in box]
        )
        for image, box in windows(rng, n, held_out)
    ]


def _any_colour(rng: random.Random, seen: str) -> str:
    return rng.choice(tuple(COLOURS))


def _too_large(rng: random.Random, seen: str) -> str:
    """Each side right in 3 of 10 cases, else three steps too far out: mostly too large."""
    box, step = [int(text) for text in seen.split(",")], 3 * COIN_GRID
    far = [max(0, v - step) if side < 2 else min(1000, v + step) for side, v in enumerate(box)]
    mixed = [v if rng.random() < 0.3 else out for v, out in zip(box, far, strict=True)]
    return "[" + ",".join(map(str, mixed)) + "]"


_IN_MIXED = (*"LOTX123", "No", "Objects", "0", "250", "500", "750", "1000")
# name, rows, guess, vocabulary; rows to train on and held out, steps of warm start and of GRPO
TASKS: dict[str, DemoTask] = {
    task.name: task
    for task in (
        DemoTask("colours", _colour_rows, _any_colour, tuple(COLOURS), 512, 64, 120, 100),
        DemoTask(
            *("coins", _coin_rows, _too_large, (), 2048, 64, 600, 80),
            rewards=("vlrft_detection_iou",),
            side=112,
            max_completion_length=28,
            learning_rate=2e-4,
        ),
        DemoTask(
            *("mixed", lambda rng, n, _: demo_rows(rng, n), demo_guess, _IN_MIXED),
            *(1200, 96, 600, 120),
            rewards=(
                *("vlrft_detection_iou", "vlrft_grounding_iou", "vlrft_counting", "vlrft_ocr"),
                "vlrft_pointing",
            ),
            max_completion_length=28,
            learning_rate=2e-4,
            # With twice that, where a shape is was often not seen after 700 steps.
            warm_learning_rate=1e-3,
        ),
    )
}


def known_task(name: str) -> DemoTask:
    if name not in TASKS:
        raise ValueError(f"unknown demo task {name!r}; known: {', '.join(TASKS)}")
    return TASKS[name]
