"""How many frames and tokens of a video a model sees, as qwen-vl-utils has it for ms-swift.

    rule = VideoRule(28).of({"FPS_MAX_FRAMES": "64"})
    rule.frames(929, 30.97), rule.tokens(480, 270, 929, 30.97)      62, 5580

Source: qwen-vl-utils 0.0.14 (``smart_nframes``, ``fetch_video``), which imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from swift_vlrft.families.resize import SmartResize
from swift_vlrft.geometry.box_format import Size

VARIABLES = (
    *("FPS", "FPS_MIN_FRAMES", "FPS_MAX_FRAMES", "VIDEO_MIN_PIXELS", "VIDEO_MAX_PIXELS"),
    *("VIDEO_MIN_TOKEN_NUM", "VIDEO_MAX_TOKEN_NUM"),
)
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

    def of(self, environ: Mapping[str, str]) -> VideoRule:
        """Return this rule under the variables of a run; ValueError for one that is no number."""
        said = {name: environ[name] for name in VARIABLES if environ.get(name, "").strip()}
        for end in ("MIN", "MAX"):  # ms-swift's compat_qwen_vl_utils
            if pixels := said.get(f"VIDEO_{end}_PIXELS"):
                said.setdefault(f"VIDEO_{end}_TOKEN_NUM", str(int(pixels) // self.factor**2))
        return replace(
            self,
            fps=float(said.get("FPS", self.fps)),
            least_frames=int(said.get("FPS_MIN_FRAMES", self.least_frames)),
            most_frames=int(said.get("FPS_MAX_FRAMES", self.most_frames)),
            least=int(said.get("VIDEO_MIN_TOKEN_NUM", self.least)),
            most=int(said.get("VIDEO_MAX_TOKEN_NUM", self.most)),
        )

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
