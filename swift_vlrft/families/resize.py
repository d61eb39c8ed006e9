"""How a model's processor resizes an image, and how many tokens the result takes.

    rule = SmartResize(factor=28, min_pixels=3136, max_pixels=12_845_056)
    rule.size(640, 480)                         (644, 476)
    rule.tokens(640, 480)                       391
    rule.size(640, 480, max_pixels=100_000)     (364, 252)

Sources: qwen-vl-utils (``smart_resize``, which ms-swift calls for Qwen), transformers' GLM-4.1V
image processor (``smart_resize`` with a time axis of two frames). Both import torch; this does not.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.geometry.box_format import Size

MAX_RATIO = 200
"""Largest ratio of the sides of an image that the families' processors accept."""

RESOLUTION = ("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM")
"""The environment variables that bound what a Qwen-VL model sees of an image."""


@dataclass(frozen=True)
class SmartResize:
    """Both sides become multiples of ``factor``; ``factor`` x ``factor`` pixels are one token.
    ``min_pixels`` and ``max_pixels`` bound the resized area times ``frames``.
    """

    factor: int
    min_pixels: int
    max_pixels: int
    frames: int = 1
    from_environment: bool = True
    """Whether ms-swift reads the limits from MIN_PIXELS and MAX_PIXELS; else they are in the
    checkpoint's preprocessor_config.json.
    """

    def size(
        self,
        width: int,
        height: int,
        *,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
    ) -> Size:
        """Width and height of the image that the model sees; ValueError for an image that no
        processor takes. Limits left out are the family's defaults.
        """
        low = self.min_pixels if min_pixels is None else min_pixels
        high = self.max_pixels if max_pixels is None else max_pixels
        if width < 1 or height < 1:
            raise ValueError(f"an image of {width} x {height} pixels has no area")
        if high < low:
            raise ValueError(f"max_pixels {high} is smaller than min_pixels {low}")
        factor, frames = self.factor, self.frames
        if frames > 1 and min(width, height) < factor:  # GLM first enlarges what is tiny
            scale = max(factor / width, factor / height)
            width, height = int(width * scale), int(height * scale)
        if max(width, height) > MAX_RATIO * min(width, height):
            raise ValueError(
                f"an image of {width} x {height} pixels is more than {MAX_RATIO} times as long as "
                "wide"
            )
        sides = self._multiples(width, height)
        area = frames * sides[0] * sides[1]
        # The same order of operations as in the processors: it decides how ties round.
        if area > high:
            scale = math.sqrt(frames * width * height / high)
            sides = [
                max(factor, math.floor(side / scale / factor) * factor) for side in (width, height)
            ]
        elif area < low:
            scale = math.sqrt(low / (frames * width * height))
            sides = [math.ceil(side * scale / factor) * factor for side in (width, height)]
        return sides[0], sides[1]

    def tokens(self, width: int, height: int, **limits: int | None) -> int:
        """Tokens of an image in the prompt, without the two that mark its start and end."""
        seen = self.size(width, height, **limits)
        return seen[0] * seen[1] // self.factor**2

    def loses_a_side(self, width: int, height: int, *, max_pixels: int | None = None) -> bool:
        """Whether qwen-vl-utils, which ms-swift calls for Qwen, fails on a thin image because one
        side becomes 0; the processors themselves keep ``factor`` pixels.
        """
        high = self.max_pixels if max_pixels is None else max_pixels
        return (
            self.from_environment
            and math.prod(self._multiples(width, height)) > high
            and min(width, height) / math.sqrt(width * height / high) < self.factor
        )

    def limits(
        self, *, model: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        """min_pixels and max_pixels as ms-swift's template uses them.

        Qwen: IMAGE_MAX_TOKEN_NUM, else MAX_PIXELS in whole tokens, else the default; the same for
        MIN. GLM: ``size`` in the preprocessor_config.json of the folder ``model``, whatever
        MAX_PIXELS.
        """
        defaults = self.min_pixels, self.max_pixels
        if not self.from_environment:
            return _limits_of_checkpoint(model) or defaults
        values = os.environ if environ is None else environ
        limits = []
        for name, default in zip(("MIN", "MAX"), defaults, strict=True):
            tokens = _number(values, f"IMAGE_{name}_TOKEN_NUM")
            if tokens is None and (pixels := _number(values, f"{name}_PIXELS")) is not None:
                tokens = pixels // self.factor**2
            limits.append(default if tokens is None else tokens * self.factor**2)
        return limits[0], limits[1]

    def _multiples(self, width: int, height: int) -> list[int]:
        factor = self.factor
        return [max(factor, round(side / factor) * factor) for side in (width, height)]


@dataclass(frozen=True)
class Squash:
    """Every image becomes ``side`` x ``side`` pixels, whatever its shape, and ``factor`` x
    ``factor`` pixels of them are one token. No limit changes that; ``min_pixels`` and
    ``max_pixels`` are the square's area, which a tiny checkpoint's config.json makes smaller.
    """

    factor: int
    side: int
    frames: int = 1
    from_environment: bool = False

    @property
    def min_pixels(self) -> int:
        return self.side**2

    @property
    def max_pixels(self) -> int:
        return self.side**2

    def size(
        self,
        width: int,
        height: int,
        *,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
    ) -> Size:
        if width < 1 or height < 1:
            raise ValueError(f"an image of {width} x {height} pixels has no area")
        side = math.isqrt(min_pixels or self.min_pixels)
        return side, side

    def tokens(self, width: int, height: int, **limits: int | None) -> int:
        return math.prod(self.size(width, height, **limits)) // self.factor**2

    def loses_a_side(self, width: int, height: int, *, max_pixels: int | None = None) -> bool:
        return False

    def limits(
        self, *, model: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        side = self.side
        if model is not None:
            try:
                values = json.loads((Path(model) / "config.json").read_text())
                side = int(values["vision_config"]["image_size"])
            except (OSError, ValueError, KeyError, TypeError):
                pass  # a name on the hub, or a folder without one
        return side**2, side**2


def _number(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "").strip()
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name}={text} is no whole number; a count of pixels is needed") from None


def _limits_of_checkpoint(model: str | Path | None) -> tuple[int, int] | None:
    if model is None:
        return None
    for name in ("preprocessor_config.json", "processor_config.json"):
        try:
            config = json.loads((Path(model) / name).read_text())
        except (OSError, ValueError):
            continue
        size = config.get("size") or config.get("image_processor", {}).get("size") or {}
        if "shortest_edge" in size and "longest_edge" in size:
            return int(size["shortest_edge"]), int(size["longest_edge"])
    return None


def capped_size(width: int, height: int, max_pixels: int | None) -> Size:
    """An image's size after ms-swift's flag ``--max_pixels``, which scales the image before the
    family's resize.
    """
    if max_pixels is None or max_pixels <= 0 or width * height <= max_pixels:
        return width, height
    ratio = width / height
    scaled = math.sqrt(max_pixels / ratio)
    return int(scaled * ratio), int(scaled)
