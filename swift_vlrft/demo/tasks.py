"""Draw the data of `vlrft demo`, on which it runs the trial of `vlrft try`.

clips    a disk in a video       "When is the red disk there?"   1 to 4
colours  one shape               "What colour is the shape?"     red
mixed    five tasks in one set   "How many shapes are there?"    2
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.clips import write_clips
from swift_vlrft.demo.mixed import demo_rows
from swift_vlrft.demo.rows import COLOURS, FORMAT, Row, draw, grey, stored


class DemoTask(NamedTuple):
    """A demo task makes rows by ``rows(rng, n)``, and sets fields of ``TrialConfig``."""

    rows: Callable[[random.Random, int], list[Row]]
    train: int
    test: int
    settings: dict[str, Any]


def _colour_rows(rng: random.Random, n: int) -> list[Row]:
    rows = []
    for _ in range(n):
        image, colour, size = grey(rng, 56), rng.choice(list(COLOURS)), rng.randint(28, 48)
        x, y = rng.randint(0, 56 - size), rng.randint(0, 56 - size)
        draw(image, rng, colour, (x, y, x + size, y + size))
        text = f"What colour is the shape? {FORMAT}"
        rows.append(Row(image, text, f"<answer>{colour}</answer>"))
    return rows


# With twice the rate, where a shape is was not seen in the same steps.
SLOW = {"warm_rate": 1e-3}
TASKS = {
    "colours": DemoTask(_colour_rows, 512, 64, SLOW | {"side": 56, "warm_steps": 240}),
    "clips": DemoTask(lambda rng, n: [], 512, 64, SLOW | {"family": "qwen2_5_vl", "side": 56}),
    "mixed": DemoTask(demo_rows, 1200, 96, SLOW | {"side": 56, "warm_steps": 800, "steps": 100}),
}


def write_drawn(name: str, folder: Path, seed: int = 0) -> DemoTask:
    """Write the splits train and test of that task to ``folder``; return the task."""
    if name not in TASKS:
        raise ValueError(f"unknown demo task {name!r}; known: {', '.join(TASKS)}")
    task, rng = TASKS[name], random.Random(seed)
    splits = {"train": task.train, "test": task.test}
    if name == "clips":
        write_clips(folder, splits, rng)
    else:
        rows = {split: [*map(stored, task.rows(rng, count))] for split, count in splits.items()}
        write_folder(folder, rows)
    return task
