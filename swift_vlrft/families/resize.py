"""How a model's processor resizes an image, and how many tokens the result takes.

    rule = SmartResize(factor=28, min_pixels=3136, max_pixels=12_845_056)
    rule.size(640, 480)                         (644, 476)
    rule.tokens(640, 480)                       391
    rule.within(max_pixels=100_000).size(640, 480)              (364, 252)

Sources: qwen-vl-utils (``smart_resize``, which ms-swift calls for Qwen) and transformers' GLM-4.1V
image processor (``smart_resize`` with a time axis of two frames). Both import torch; this does not.
The other rules are in fixed.py, and in tiles.py for images that are cut in parts.
"""

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from swift_vlrft.geometry.box_format import Size

MAX_RATIO = 200
"""Largest ratio of the sides of an image that the families' processors accept."""

RESOLUTION = (
    *("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM"),
    "MAX_SLICE_NUMS",
)
"""The environment variables that bound what a model sees of an image: Qwen-VL's, MiniCPM-V's."""

FILES = {
    "config.json": "vision_config",
    "processor_config.json": "image_processor",
    "preprocessor_config.json": "image_processor",
}
"""Where a checkpoint describes its images, and in which part; the last one counts most."""


@dataclass(frozen=True, kw_only=True)
class ImageRule(ABC):
    """``factor`` x ``factor`` pixels of what the model sees are one token. ``min_pixels`` and
    ``max_pixels`` are the family's limits; ``within`` and ``of`` return the rule with a run's.
    """

    factor: int
    min_pixels: int
    max_pixels: int
    frames: int = 1
    from_environment: bool = False
    """Whether ms-swift reads the limits from MIN_PIXELS and MAX_PIXELS, with qwen-vl-utils; else
    they are in the checkpoint's preprocessor_config.json.
    """
    adjustable: ClassVar[bool] = False
    """Whether a variable or a flag makes the images smaller."""
    seen: ClassVar[str] = "in the same size"
    """How the model sees an image of any size, where no flag changes that."""

    def within(self, min_pixels: int | None = None, max_pixels: int | None = None) -> Self:
        """Return this rule with other limits."""
        low = self.min_pixels if min_pixels is None else min_pixels
        high = self.max_pixels if max_pixels is None else max_pixels
        return replace(self, min_pixels=low, max_pixels=high)

    def of(self, model: str | Path | None, environ: Mapping[str, str] | None = None) -> Self:
        """Return this rule with a checkpoint's limits, as its template uses them."""
        return self.within(*self.limits(model, environ))

    def limits(
        self, model: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        """Return the checkpoint's min_pixels and max_pixels; this rule's for a name on the hub."""
        return self._limits(of_checkpoint(model), os.environ if environ is None else environ)

    @abstractmethod
    def _limits(self, said: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[int, int]: ...

    def capped(self, flag: int) -> Self:
        """Return this rule where ms-swift's flag ``--max_pixels`` is given, too."""
        return self

    @abstractmethod
    def _parts(self, width: int, height: int) -> list[Size]: ...

    def parts(self, width: int, height: int) -> list[Size]:
        """Return the sizes of the pictures that the ViT gets of one image. ValueError for an image
        that no processor takes.
        """
        if width < 1 or height < 1:
            raise ValueError(f"an image of {width} x {height} pixels has no area")
        return self._parts(width, height)

    def grid(self, width: int, height: int) -> Size:
        """Return the columns and rows into which the image is cut."""
        return 1, 1

    def size(self, width: int, height: int) -> Size:
        """Return the width and height of the whole image as the model sees it."""
        part = self.parts(width, height)[-1]
        columns, rows = self.grid(width, height)
        return part[0] * columns, part[1] * rows

    def tokens(self, width: int, height: int) -> int:
        """Count the tokens of an image in the prompt, without its marks."""
        return sum(map(math.prod, self.parts(width, height))) // self.factor**2

    def marks(self, width: int, height: int) -> int:
        """Count the tokens around those of the image: its start and its end."""
        return 2

    @abstractmethod
    def largest(self) -> Size:
        """Return an image that takes as many tokens as any."""

    def loses_a_side(self, width: int, height: int) -> bool:
        """Return whether a thin image ends in a side of 0 pixels."""
        return False


@dataclass(frozen=True, kw_only=True)
class SmartResize(ImageRule):
    """Both sides become multiples of ``factor``. ``min_pixels`` and ``max_pixels`` bound the
    resized area times ``frames``.
    """

    from_environment: bool = True
    adjustable: ClassVar[bool] = True

    def _parts(self, width: int, height: int) -> list[Size]:
        factor, frames, low, high = self.factor, self.frames, self.min_pixels, self.max_pixels
        if high < low:
            raise ValueError(f"max_pixels {high} is smaller than min_pixels {low}")
        if frames > 1 and min(width, height) < factor:  # GLM first enlarges what is tiny
            scale = max(factor / width, factor / height)
            width, height = int(width * scale), int(height * scale)
        if max(width, height) > MAX_RATIO * min(width, height):
            raise ValueError(
                f"an image of {width} x {height} pixels is more than {MAX_RATIO} times as long as "
                "wide"
            )
        sides = [multiple(side, factor) for side in (width, height)]
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
        return [(sides[0], sides[1])]

    def largest(self) -> Size:
        side = max(1, math.isqrt(self.max_pixels // self.frames))
        return side, side

    def capped(self, flag: int) -> Self:
        return self.within(
            max_pixels=max(self.min_pixels, min(self.max_pixels, flag * self.frames))
        )

    def loses_a_side(self, width: int, height: int) -> bool:
        """qwen-vl-utils, which ms-swift calls for Qwen, fails then. The processors themselves keep
        ``factor`` pixels.
        """
        area = multiple(width, self.factor) * multiple(height, self.factor)
        return (
            self.from_environment
            and area > self.max_pixels
            and min(width, height) / math.sqrt(width * height / self.max_pixels) < self.factor
        )

    def _limits(self, said: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[int, int]:
        """Qwen: IMAGE_MAX_TOKEN_NUM, else MAX_PIXELS in whole tokens, else the default; the same
        for MIN. GLM: ``size`` of the checkpoint, whatever MAX_PIXELS.
        """
        defaults = self.min_pixels, self.max_pixels
        if not self.from_environment:
            size = said.get("size", {})
            if "shortest_edge" in size and "longest_edge" in size:
                return int(size["shortest_edge"]), int(size["longest_edge"])
            return defaults
        limits = []
        for name, default in zip(("MIN", "MAX"), defaults, strict=True):
            tokens = number_in(environ, f"IMAGE_{name}_TOKEN_NUM")
            if tokens is None and (pixels := number_in(environ, f"{name}_PIXELS")) is not None:
                tokens = pixels // self.factor**2
            limits.append(default if tokens is None else tokens * self.factor**2)
        return limits[0], limits[1]


def multiple(length: int, factor: int) -> int:
    """Return the multiple of ``factor`` that is nearest to a length, and one at least."""
    return max(factor, round(length / factor) * factor)


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


def of_checkpoint(model: str | Path | None) -> dict[str, Any]:
    """Return what a checkpoint's folder says of its ViT and its image processor, by its names.
    A name on the hub says nothing.
    """
    said: dict[str, Any] = {}
    for file, part in FILES.items() if model else ():
        try:
            config = json.loads((Path(str(model)) / file).read_text())
            values = {**config, **config.get(part, {})}
        except (OSError, ValueError, TypeError, AttributeError):
            continue
        said |= {name: value for name, value in values.items() if value}
    return said


def capped_size(width: int, height: int, max_pixels: int | None) -> Size:
    """Return an image's size after ms-swift's flag ``--max_pixels``, before the family's resize."""
    if max_pixels is None or max_pixels <= 0 or width * height <= max_pixels:
        return width, height
    ratio = width / height
    scaled = math.sqrt(max_pixels / ratio)
    return int(scaled * ratio), int(scaled)
