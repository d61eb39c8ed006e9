"""Rows of drawn clips, 8 frames a second, for tests."""

import random
from pathlib import Path
from typing import Any

from swift_vlrft.demo import clips

RATE = 8
ASK = clips.ASK + " such as <answer>0.5 to 1.5</answer>."


def draw_clip(
    path: Path, span: tuple[float, float] = (0.5, 1.5), seconds: float = 2.0, **more: Any
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    more = {"side": 56, "times": [n / RATE for n in range(round(seconds * RATE))]} | more
    clips.draw_clip(path, span, rng=random.Random(0), **more)
    return path


def clip_rows(folder: Path, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Draw clips of two seconds below ``folder``, and return a row of each."""
    rng, rows = random.Random(seed), []
    for n in range(count):
        start, colour = rng.randrange(0, 3) / 2, rng.choice(sorted(clips.COLOURS))
        end = start + rng.choice([0.5, 1.0])
        draw_clip(folder / f"{n}.mp4", (start, end), colour=colour)
        rows.append({"videos": [f"{n}.mp4"], "problem": ASK.format(colour)})
        rows[-1]["solution"] = f"{start} to {end}"
    return rows
