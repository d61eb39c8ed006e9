"""How a model's processor resizes an image, and how many tokens the result takes.

    rule = SmartResize(factor=28, min_pixels=3136, max_pixels=12_845_056)
    rule.size(640, 480)                         (644, 476)
    rule.tokens(640, 480)                       391
    rule.size(640, 480, max_pixels=100_000)     (364, 252)

Sources: qwen-vl-utils (``smart_resize``, which ms-swift calls for Qwen) and transformers' GLM-4.1V
image processor (``smart_resize`` with a time axis of two frames). Both import torch; this does not.
The other rules are in fixed.py, and in tiles.py for images that are cut in parts.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from swift_vlrft.geometry.box_format import Size

MAX_RATIO = 200
"""Largest ratio of the sides of an image that the families' processors accept."""

RESOLUTION = (
    *("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM"),
    "MAX_SLICE_NUMS",
)
"""The environment variables that bound what a model sees of an image: Qwen-VL's, MiniCPM-V's."""


@dataclass(frozen=True, kw_only=True)
class ImageRule(ABC):
    """``factor`` x ``factor`` pixels of what the model sees are one token. ``min_pixels`` and
    ``max_pixels`` of the methods are the limits of a run (``limits``); left out, the family's.
    """

    factor: int
    frames: int = 1
    from_environment: bool = False
    """Whether ms-swift reads the limits from MIN_PIXELS and MAX_PIXELS; else they are in the
    checkpoint's preprocessor_config.json.
    """
    adjustable: ClassVar[bool] = False
    """Whether a variable or a flag makes the images smaller."""
    seen: ClassVar[str] = "in the same size"
    """How the model sees an image of any size, where no flag changes that."""

    if TYPE_CHECKING:  # fields of SmartResize, else properties

        @property
        def min_pixels(self) -> int: ...

        @property
        def max_pixels(self) -> int: ...

    @abstractmethod
    def seen_as(self, width: int, height: int, low: int, high: int) -> Size:
        """Do ``size`` between ``low`` and ``high`` pixels."""

    def size(self, width: int, height: int, **limits: int | None) -> Size:
        """Return width and height of the whole image as the model sees it; ValueError for an image
        that no processor takes.
        """
        return self.seen_as(width, height, *self.bounds(width, height, **limits))

    def bounds(
        self,
        width: int,
        height: int,
        *,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
    ) -> tuple[int, int]:
        """Return the limits of a run, else the family's; ValueError for an image without area."""
        if width < 1 or height < 1:
            raise ValueError(f"an image of {width} x {height} pixels has no area")
        low = self.min_pixels if min_pixels is None else min_pixels
        return low, self.max_pixels if max_pixels is None else max_pixels

    def parts(self, width: int, height: int, **limits: int | None) -> list[Size]:
        """Return the sizes of the pictures that the ViT gets of one image."""
        return [self.size(width, height, **limits)]

    def tokens(self, width: int, height: int, **limits: int | None) -> int:
        """Count the tokens of an image in the prompt, without its marks."""
        return sum(map(math.prod, self.parts(width, height, **limits))) // self.factor**2

    def marks(self, width: int, height: int, **limits: int | None) -> int:
        """Count the tokens around those of the image: its start and its end."""
        return 2

    @abstractmethod
    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        """Return an image that takes as many tokens as any, under these limits."""

    def limits(
        self, *, model: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        """Return the checkpoint's min_pixels and max_pixels, as its template uses them."""
        return self.limits_of(model, os.environ if environ is None else environ)

    @abstractmethod
    def limits_of(self, model: str | Path | None, environ: Mapping[str, str]) -> tuple[int, int]:
        """Do ``limits``."""

    def capped(self, min_pixels: int, max_pixels: int, flag: int) -> tuple[int, int]:
        """Return the limits where ms-swift's flag ``--max_pixels`` is given too."""
        return min_pixels, max_pixels

    def loses_a_side(self, width: int, height: int, *, max_pixels: int | None = None) -> bool:
        """Return whether a thin image ends in a side of 0 pixels."""
        return False


@dataclass(frozen=True, kw_only=True)
class SmartResize(ImageRule):
    """Both sides become multiples of ``factor``; ``min_pixels`` and ``max_pixels`` bound the
    resized area times ``frames``.
    """

    min_pixels: int
    max_pixels: int
    from_environment: bool = True
    adjustable: ClassVar[bool] = True

    def seen_as(self, width: int, height: int, low: int, high: int) -> Size:
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

    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        side = max(1, math.isqrt(max_pixels // self.frames))
        return side, side

    def capped(self, min_pixels: int, max_pixels: int, flag: int) -> tuple[int, int]:
        return min_pixels, max(min_pixels, min(max_pixels, flag * self.frames))

    def loses_a_side(self, width: int, height: int, *, max_pixels: int | None = None) -> bool:
        """qwen-vl-utils, which ms-swift calls for Qwen, fails then; the processors themselves keep
        ``factor`` pixels.
        """
        high = self.max_pixels if max_pixels is None else max_pixels
        return (
            self.from_environment
            and math.prod(self._multiples(width, height)) > high
            and min(width, height) / math.sqrt(width * height / high) < self.factor
        )

    def limits_of(self, model: str | Path | None, environ: Mapping[str, str]) -> tuple[int, int]:
        """Qwen: IMAGE_MAX_TOKEN_NUM, else MAX_PIXELS in whole tokens, else the default; the same
        for MIN. GLM: ``size`` of the checkpoint, whatever MAX_PIXELS.
        """
        defaults = self.min_pixels, self.max_pixels
        if not self.from_environment:
            size = of_image_processor(model, "size")
            if size and "shortest_edge" in size and "longest_edge" in size:
                return int(size["shortest_edge"]), int(size["longest_edge"])
            return defaults
        limits = []
        for name, default in zip(("MIN", "MAX"), defaults, strict=True):
            tokens = number_in(environ, f"IMAGE_{name}_TOKEN_NUM")
            if tokens is None and (pixels := number_in(environ, f"{name}_PIXELS")) is not None:
                tokens = pixels // self.factor**2
            limits.append(default if tokens is None else tokens * self.factor**2)
        return limits[0], limits[1]

    def _multiples(self, width: int, height: int) -> list[int]:
        factor = self.factor
        return [max(factor, round(side / factor) * factor) for side in (width, height)]


def squarest(area: int) -> tuple[int, int]:
    """Return the sides of the rectangle of that area that is nearest to a square."""
    rows = next(n for n in range(math.isqrt(area), 0, -1) if area % n == 0)
    return area // rows, rows


def number_in(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name}={text} is no whole number; a count of pixels is needed") from None


def of_image_processor(model: str | Path | None, name: str) -> Any:
    """Return what a checkpoint's folder says of its image processor under that name; None for a
    name on the hub, or a folder that does not say.
    """
    for file in ("preprocessor_config.json", "processor_config.json") if model else ():
        try:
            config = json.loads((Path(str(model)) / file).read_text())
            values = {**config, **config.get("image_processor", {})}
        except (OSError, ValueError, TypeError, AttributeError):
            continue
        if values.get(name):
            return values[name]
    return None


def capped_size(width: int, height: int, max_pixels: int | None) -> Size:
    """Return an image's size after ms-swift's flag ``--max_pixels``, before the family's resize."""
    if max_pixels is None or max_pixels <= 0 or width * height <= max_pixels:
        return width, height
    ratio = width / height
    scaled = math.sqrt(max_pixels / ratio)
    return int(scaled * ratio), int(scaled)
