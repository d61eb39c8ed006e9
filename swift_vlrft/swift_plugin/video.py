"""qwen-vl-utils with a reader of videos that every installation has, PyAV as ``pyav``.

Its own need FFmpeg on the machine (torchcodec), a package of 2021 (decord), or a function that
torchvision 0.26 no longer has. FORCE_QWENVL_VIDEO_READER names one of these instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from typing import Any

from swift_vlrft.families.video import LIMITS
from swift_vlrft.files.video import video_facts

VARIABLE, NAME = "FORCE_QWENVL_VIDEO_READER", "pyav"


def register() -> None:
    """Add the reader to qwen-vl-utils' own, and name it unless the environment names another."""
    if find_spec("qwen_vl_utils") is not None:
        os.environ.setdefault(VARIABLE, NAME)  # read when the module is imported
        from qwen_vl_utils import vision_process

        vision_process.VIDEO_READER_BACKENDS[NAME] = read_video


@contextmanager
def own_limits() -> Iterator[None]:
    """Have ms-swift read a model's limits from the environment, for each model of a process.

    It sets qwen-vl-utils' constants for the first one alone, and writes some into the environment.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == "qwen_vl_utils"]:
        del sys.modules[name]
    register()
    before = {name: os.environ[name] for name in LIMITS if name in os.environ}
    try:
        yield
    finally:
        for name in LIMITS:
            os.environ.pop(name, None)
        os.environ.update(before)


def read_video(asked: dict[str, Any]) -> tuple[Any, dict[str, Any], float]:
    """Return what qwen-vl-utils' readers do: frames, what is known of them, and their rate."""
    import av
    import numpy as np
    import torch
    from qwen_vl_utils import vision_process

    _, _, seconds, frames_there = video_facts(asked["video"])
    rate = frames_there / seconds
    first, last, total = vision_process.calculate_video_frame_range(asked, frames_there, rate)
    count = vision_process.smart_nframes(asked, total_frames=total, video_fps=rate)
    numbers = torch.linspace(first, last, count).round().long().tolist()
    with av.open(asked["video"]) as opened:
        shown = enumerate(islice(opened.decode(opened.streams.video[0]), last + 1))
        wanted = {*numbers}
        # One thread: to start others takes many times as long as to convert a frame.
        frames = {n: f.to_ndarray(format="rgb24", threads=1) for n, f in shown if n in wanted}
    video = torch.from_numpy(np.stack([frames[n] for n in numbers])).permute(0, 3, 1, 2)
    known = {"fps": rate, "frames_indices": numbers, "total_num_frames": total}
    return video, known | {"video_backend": NAME}, count / total * rate
