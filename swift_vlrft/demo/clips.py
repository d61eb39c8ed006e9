"""Draw clips in which a coloured disk, on noise, is there from one second to another.

    write_drawn(Path("clips"))

clips/0.mp4, and in clips/train.jsonl {"videos": ["0.mp4"], "problem": "When is the red disk there?
...", "solution": "1 to 4"}
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from swift_vlrft.demo.rows import COLOURS, FORMAT

SECONDS = 4
TRIAL: dict[str, Any] = {"family": "qwen2_5_vl", "side": 56, "warm_steps": 300, "warm_rate": 1e-3}
"""Fields of ``TrialConfig`` for the set of ``write_drawn``."""
ASK = "When is the {} disk there? Give start and end in seconds. " + FORMAT


def write_drawn(folder: Path, seed: int = 0, count: int = 640) -> None:
    """Write the set of `vlrft demo --task clips`, of whose rows 512 train and 128 do not."""
    rng = random.Random(seed)
    times = [n / 2 for n in range(2 * SECONDS)]
    folder.mkdir(parents=True)
    with (folder / "train.jsonl").open("w") as file:
        for number in range(count):
            start, end = sorted(rng.sample(range(SECONDS + 1), 2))
            colour, name = rng.choice(list(COLOURS)), f"{number}.mp4"
            draw_clip(folder / name, (start, end), times, rng=rng, side=56, colour=colour)
            row = {"videos": [name], "problem": ASK.format(colour)}
            file.write(json.dumps(row | {"solution": f"{start} to {end}"}) + "\n")


def draw_clip(
    path: Path,
    span: tuple[float, float],
    times: Sequence[float],
    *,
    rng: random.Random,
    side: int,
    colour: str = "red",
) -> None:
    """Write a clip with a frame at each of ``times``, square, of ``side`` pixels."""
    import av
    import numpy as np

    y, x = np.mgrid[:side, :side] - side / 2
    disk = x**2 + y**2 < (side / 3) ** 2
    noise = np.random.default_rng(rng.getrandbits(32))
    with av.open(path, "w") as out:
        stream = out.add_stream("mpeg4", rate=len(times))
        stream.width = stream.height = side
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, 1000)
        for time in times:
            picture = noise.integers(90, 110, (side, side, 3)).astype(np.uint8)
            if span[0] <= time < span[1]:
                picture[disk] = COLOURS[colour]
            drawn = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame = drawn.reformat(format="yuv420p", threads=1)
            frame.pts, frame.time_base = round(time * 1000), Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
