"""A video is opened by PyAV: its length, its frames and their size.

    video_facts("clips/3MSZA.mp4")    (480, 270, 30.97, 929)

Only the first frame is decoded; of the others the times are read. ms-swift picks frames by their
number, as if each stood as long as the others, so a varying frame rate is refused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from swift_vlrft.files.text import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

UNEVEN = 0.1
"""So many seconds may a frame stand from its even place: spans are annotated in tenths."""


def video_facts(path: str) -> tuple[int, int, float, int]:
    """Return width, height, seconds and number of frames; InputError: why it cannot be used."""
    import av

    name = f"the video {path[:300]}"
    if not os.path.isfile(path):
        raise InputError(f"{name} does not exist, or is no file")
    try:
        with av.open(path) as opened:
            if opened.format.name.endswith("_pipe") or opened.format.name == "image2":
                raise InputError(f"{name} is a picture, and a row of a video needs a video")
            if not opened.streams.video:
                raise InputError(f"{name} holds no video (sound alone?)")
            stream = opened.streams.video[0]
            frame = next(opened.decode(stream))
            opened.seek(0)
            packets = [(p.pts, p.size) for p in opened.demux(stream) if p.pts is not None]
            stated = stream.frames if "mp4" in opened.format.name else 0  # others pad their count
            base = float(stream.time_base or 1)
    except InputError:
        raise
    except (av.FFmpegError, StopIteration, OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or "no frame can be decoded"
        raise InputError(f"{name} cannot be read ({why}); get it again") from error
    if len(packets) < stated:
        raise InputError(f"{name} is cut off: {len(packets)} of {stated} frames; get it again")
    marks = sorted(mark for mark, size in packets if size)
    if len(marks) < 2:
        raise InputError(f"{name} holds one frame; two are needed")
    if frame.rotation:
        raise InputError(f"{name} is turned by its header; write it anew by ffmpeg -i OLD NEW")
    times = [(mark - marks[0]) * base for mark in marks]
    step = times[-1] / (len(times) - 1)
    uneven = max(abs(time - n * step) for n, time in enumerate(times))
    if uneven > UNEVEN:
        raise InputError(
            f"{name} has a varying frame rate: a frame stands {uneven:.1f} s from its even place, "
            "and ms-swift counts frames; write it anew by ffmpeg -i OLD -vf fps=25 NEW"
        )
    return frame.width, frame.height, times[-1] + step, len(times)


def video_strip(path: str) -> Image:
    """Return a time line: three frames side by side, each from the middle of its third."""
    import av
    from PIL import Image

    width, height, _, count = video_facts(path)
    places = [count * part // 6 for part in (1, 3, 5)]
    strip = Image.new("RGB", (3 * width, height))
    with av.open(path) as opened:
        for number, frame in enumerate(opened.decode(opened.streams.video[0])):
            for place in (n for n in range(3) if places[n] == number):
                strip.paste(frame.to_image(), (place * width, 0))
    return strip
