"""Drawn clips, 8 frames a second: a coloured disk is there from second a to b, on grey noise."""

import json
import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

RATE = 8
COLOURS = {"red": (220, 40, 40), "blue": (40, 60, 220), "green": (30, 170, 60)}
ASK = (
    "When is the {} disk there? Give start and end in seconds. Think in <think> </think>, then "
    "answer in <answer> </answer>, such as <answer>0.5 to 1.5</answer>."
)


def draw_clip(
    path: Path,
    span: tuple[float, float] = (0.5, 1.5),
    *,
    seconds: float = 2.0,
    side: int = 56,
    colour: str = "red",
    times: Iterable[float] | None = None,
) -> Path:
    """Write one; ``times`` are those of its frames, where they are not even."""
    y, x = np.mgrid[:side, :side] - side / 2
    disk = x**2 + y**2 < (side / 3) ** 2
    rng = np.random.default_rng(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(path, "w") as out:
        stream = out.add_stream("mpeg4", rate=RATE)
        stream.width = stream.height = side
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, 1000)
        for time in times or np.arange(round(seconds * RATE)) / RATE:
            picture = rng.integers(90, 110, (side, side, 3)).astype(np.uint8)
            if span[0] <= time < span[1]:
                picture[disk] = COLOURS[colour]
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = round(float(time) * 1000), Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path


def clip_rows(folder: Path, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Draw clips of two seconds below ``folder``, and return a row of each."""
    rng, rows = random.Random(seed), []
    for n in range(count):
        start, colour = rng.randrange(0, 3) / 2, rng.choice(sorted(COLOURS))
        end = start + rng.choice([0.5, 1.0])
        draw_clip(folder / f"{n}.mp4", (start, end), colour=colour)
        rows.append({"videos": [f"{n}.mp4"], "problem": ASK.format(colour)})
        rows[-1]["solution"] = f"{start} to {end}"
    return rows


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
