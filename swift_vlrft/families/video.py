"""How many frames and tokens of a video a model sees, as qwen-vl-utils has it for ms-swift.

    rule = VideoRule(28).of({"FPS_MAX_FRAMES": "64"})
    rule.frames(929, 30.97), rule.tokens(480, 270, 929, 30.97)      62, 5580

Source: qwen-vl-utils 0.0.14 (``smart_nframes``, ``fetch_video``), which imports torch.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from swift_vlrft.families.resize import RESOLUTION, SmartResize
from swift_vlrft.geometry.box_format import Size

VARIABLES = {
    **{"fps": "FPS", "least_frames": "FPS_MIN_FRAMES", "most_frames": "FPS_MAX_FRAMES"},
    **{"least": "VIDEO_MIN_TOKEN_NUM", "most": "VIDEO_MAX_TOKEN_NUM"},
}
LIMITS = (*RESOLUTION, *VARIABLES.values(), "VIDEO_MIN_PIXELS", "VIDEO_MAX_PIXELS")
TOTAL = int(128_000 * 0.9)  # tokens of a video, at most


@dataclass(frozen=True)
class VideoRule:
    """``factor`` x ``factor`` pixels of two frames are one token."""

    factor: int
    fps: float = 2.0
    least_frames: int = 4
    most_frames: int = 768
    least: int = 128  # tokens of a frame
    most: int = 768

    def of(self, environ: Mapping[str, str]) -> Self:
        """Return this rule under variables; ValueError for one that is no number above 0."""
        said: dict[str, Any] = {
            field: _number(environ, name, float if field == "fps" else int)
            for field, name in VARIABLES.items()
            if environ.get(name, "").strip()
        }
        for field, name in {"least": "VIDEO_MIN_PIXELS", "most": "VIDEO_MAX_PIXELS"}.items():
            if environ.get(name):  # ms-swift's compat_qwen_vl_utils
                said.setdefault(field, _number(environ, name, int) // self.factor**2)
        return replace(self, **said)

    def frames(self, total: int, seconds: float) -> int:
        """Return how many of the video's frames are seen."""
        low = math.ceil(self.least_frames / 2) * 2
        high = min(self.most_frames, total) // 2 * 2
        return int(min(max(seconds * self.fps, low), high, total) // 2 * 2)

    def size(self, width: int, height: int, frames: int) -> Size:
        """Return the size in which a frame is seen."""
        area = self.factor**2
        most = max(min(self.most, TOTAL / frames * 2), int(self.least * area * 1.05) / area)
        low, high = self.least * area, int(most * area)
        return SmartResize(factor=self.factor, min_pixels=low, max_pixels=high).size(width, height)

    def tokens(self, width: int, height: int, total: int, seconds: float) -> int:
        """Count the tokens of a video in the prompt."""
        frames = self.frames(total, seconds)
        return math.prod(self.size(width, height, frames)) // self.factor**2 * frames // 2


def _number(environ: Mapping[str, str], name: str, kind: type) -> Any:
    with suppress(ValueError):
        if (number := kind(environ[name])) > 0:
            return number
    raise ValueError(f"{name}={environ[name]}: a positive number is needed")
