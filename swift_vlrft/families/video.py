"""In which size a model sees the frames of a video, as qwen-vl-utils has it for ms-swift.

    rule = VideoRule(28).of({"FPS_MAX_FRAMES": "64"})
    rule.most_frames, rule.size(480, 270, 62)       64, (504, 280)

Source: qwen-vl-utils 0.0.14 (``fetch_video``), which imports torch.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from swift_vlrft.families.resize import RESOLUTION, SmartResize
from swift_vlrft.geometry.box_format import Size

FIELDS = {
    "FPS_MAX_FRAMES": "most_frames",
    "VIDEO_MIN_TOKEN_NUM": "least",
    "VIDEO_MAX_TOKEN_NUM": "most",
}
VARIABLES = ("FPS", "FPS_MIN_FRAMES", *FIELDS)
LIMITS = (*RESOLUTION, *VARIABLES, "VIDEO_MIN_PIXELS", "VIDEO_MAX_PIXELS")
TOTAL = int(128_000 * 0.9)  # tokens of a video, at most


@dataclass(frozen=True)
class VideoRule:
    """``factor`` x ``factor`` pixels of two frames are one token."""

    factor: int
    most_frames: int = 768
    least: int = 128  # tokens of a frame
    most: int = 768

    def of(self, environ: Mapping[str, str]) -> Self:
        """Return this rule under variables; ValueError for one that is no number above 0."""
        numbers = {
            name: _number(environ, name, float if name == "FPS" else int)
            for name in VARIABLES
            if environ.get(name, "").strip()
        }
        said = {FIELDS[name]: number for name, number in numbers.items() if name in FIELDS}
        for field, name in {"least": "VIDEO_MIN_PIXELS", "most": "VIDEO_MAX_PIXELS"}.items():
            if environ.get(name):  # ms-swift's compat_qwen_vl_utils
                said.setdefault(field, _number(environ, name, int) // self.factor**2)
        return replace(self, **said)

    def size(self, width: int, height: int, frames: int) -> Size:
        """Return the size in which a frame is seen."""
        area = self.factor**2
        most = max(min(self.most, TOTAL / frames * 2), int(self.least * area * 1.05) / area)
        low, high = self.least * area, int(most * area)
        return SmartResize(factor=self.factor, min_pixels=low, max_pixels=high).size(width, height)


def _number(environ: Mapping[str, str], name: str, kind: type) -> Any:
    with suppress(ValueError):
        if (number := kind(environ[name])) > 0:
            return number
    raise ValueError(f"{name}={environ[name]}: a positive number is needed")
