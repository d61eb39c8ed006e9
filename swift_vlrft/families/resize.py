"""How a model's processor resizes an image, and how many tokens the result takes.

    rule = SmartResize(factor=28, min_pixels=3136, max_pixels=12_845_056)
    rule.size(640, 480)                         (644, 476)
    rule.tokens(640, 480)                       391
    rule.size(640, 480, max_pixels=100_000)     (364, 252)

Sources: qwen-vl-utils (``smart_resize``, which ms-swift calls for Qwen), transformers' image
processors of GLM-4.1V (``smart_resize`` with a time axis of two frames), MiniCPM-V 4.6 and Gemma 4.
All of them import torch; this does not.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.geometry.box_format import Size

MAX_RATIO = 200
"""Largest ratio of the sides of an image that the families' processors accept."""

RESOLUTION = (
    *("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM"),
    "MAX_SLICE_NUMS",
)
"""The environment variables that bound what a model sees of an image: Qwen-VL's, MiniCPM-V's."""

MARKS = 2
"""Tokens that mark an image's start and end."""


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
    fixed = False

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
        """Tokens of an image in the prompt, without those that mark its start and end."""
        seen = self.size(width, height, **limits)
        return seen[0] * seen[1] // self.factor**2

    def marks(self, width: int, height: int, **limits: int | None) -> int:
        """Tokens around those of the image."""
        return MARKS

    def views(self, width: int, height: int, **limits: int | None) -> list[Size]:
        """Sizes of the pictures that the ViT encodes for one image."""
        return [self.size(width, height, **limits)]

    def largest(self, low: int, high: int) -> Size:
        """An image that takes the most tokens under these limits."""
        side = max(1, math.isqrt(high // self.frames))
        return side, side

    def capped(self, low: int, high: int, max_pixels: int) -> tuple[int, int]:
        """min_pixels and max_pixels where ms-swift's flag ``--max_pixels`` is given too."""
        return low, max(low, min(high, max_pixels * self.frames))

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
    fixed = True
    """Every image takes the same tokens, whatever --max_pixels."""

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

    def marks(self, width: int, height: int, **limits: int | None) -> int:
        return MARKS

    def views(self, width: int, height: int, **limits: int | None) -> list[Size]:
        return [self.size(width, height, **limits)]

    def largest(self, low: int, high: int) -> Size:
        return self.side, self.side

    def capped(self, low: int, high: int, max_pixels: int) -> tuple[int, int]:
        return low, high

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


@dataclass(frozen=True)
class Slices:
    """The whole image in one view of about ``side`` x ``side`` pixels and, if it is larger than
    that, also cut in a grid of up to ``slices`` such views. Sides of views are multiples of
    ``factor``; ``factor`` x ``factor`` pixels of them are one token.

    ``min_pixels`` is the area of one view and ``max_pixels`` that of all; a tiny checkpoint's
    preprocessor_config.json makes views smaller.
    """

    factor: int
    side: int
    slices: int
    frames: int = 1
    from_environment: bool = False
    fixed = False

    @property
    def min_pixels(self) -> int:
        return self.side**2

    @property
    def max_pixels(self) -> int:
        return (1 + self.slices) * self.side**2

    def size(self, width: int, height: int, **limits: int | None) -> Size:
        """Width and height of the whole image in the finest views."""
        columns, rows = self._grid(width, height, **limits)
        seen = self.views(width, height, **limits)[-1]
        return seen[0] * columns, seen[1] * rows

    def tokens(self, width: int, height: int, **limits: int | None) -> int:
        return sum(map(math.prod, self.views(width, height, **limits))) // self.factor**2

    def marks(self, width: int, height: int, **limits: int | None) -> int:
        """Also the image's number between two tokens and the line break of ms-swift's template;
        two tokens around each slice, and a line break between their rows.
        """
        columns, rows = self._grid(width, height, **limits)
        around = 2 * columns * rows + rows - 1 if columns * rows > 1 else 0
        return MARKS + 4 + around

    def views(self, width: int, height: int, **limits: int | None) -> list[Size]:
        columns, rows = self._grid(width, height, **limits)
        side, _ = self._bounds(**limits)
        whole = self._fitted(width, height, side)
        if columns * rows == 1:
            return [whole]
        part = _multiple(width, columns) / columns, _multiple(height, rows) / rows
        return [whole] + [self._fitted(*part, side)] * (columns * rows)

    def largest(self, low: int, high: int) -> Size:
        """Rounding of the sides gives some shapes an eighth more tokens."""
        side, slices = self._bounds(min_pixels=low, max_pixels=high)
        columns, rows = _squarest(slices)
        return side * columns, side * rows

    def capped(self, low: int, high: int, max_pixels: int) -> tuple[int, int]:
        """An image is cut in one slice more at most than its area needs."""
        needed = math.ceil(max_pixels / low)
        return low, min(high, (1 + (needed + 1 if needed > 1 else 1)) * low)

    def loses_a_side(self, width: int, height: int, *, max_pixels: int | None = None) -> bool:
        return False

    def limits(
        self, *, model: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        """ms-swift's template takes the number of slices from MAX_SLICE_NUMS, else 9, and the size
        of a view from the checkpoint.
        """
        side = _preprocessor(model).get("scale_resolution") or self.side
        slices = _number(os.environ if environ is None else environ, "MAX_SLICE_NUMS")
        return side**2, (1 + (self.slices if slices is None else slices)) * side**2

    def _bounds(
        self, *, min_pixels: int | None = None, max_pixels: int | None = None
    ) -> tuple[int, int]:
        """Side of a view, and the largest number of slices."""
        low = min_pixels or self.min_pixels
        return math.isqrt(low), (max_pixels or self.max_pixels) // low - 1

    def _grid(self, width: int, height: int, **limits: int | None) -> tuple[int, int]:
        """Columns and rows of the slices; the grid whose shape is nearest to the image's."""
        if width < 1 or height < 1:
            raise ValueError(f"an image of {width} x {height} pixels has no area")
        side, most = self._bounds(**limits)
        needed = min(math.ceil(width * height / side**2), most)
        if needed <= 1:
            return 1, 1
        grids = [
            (many // rows, rows)
            for many in (needed - 1, needed, needed + 1)
            if 1 < many <= most
            for rows in range(1, many + 1)
            if many % rows == 0
        ]
        ratio = math.log(width / height)
        # Of equally near ones the first with the most rows.
        return min(grids, key=lambda grid: (abs(ratio - math.log(grid[0] / grid[1])), -grid[1]))

    def _fitted(self, width: float, height: float, side: int) -> Size:
        ratio = width / height
        rows = int(side / math.sqrt(ratio))
        columns = int(rows * ratio)
        return _multiple(columns, self.factor), _multiple(rows, self.factor)


@dataclass(frozen=True)
class Budget:
    """Every image, small or large, is scaled to as many tokens of ``factor`` x ``factor`` pixels as
    fit in ``budget`` and in its shape. ``min_pixels`` and ``max_pixels`` are the area of the
    budget, which is the checkpoint's: 70, 140, 280, 560 or 1120 tokens.
    """

    factor: int
    budget: int
    frames: int = 1
    from_environment: bool = False
    fixed = True

    @property
    def min_pixels(self) -> int:
        return self.max_pixels

    @property
    def max_pixels(self) -> int:
        return self.budget * self.factor**2

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
        area, factor = max_pixels or self.max_pixels, self.factor
        scale = math.sqrt(area / (height * width))
        seen = [math.floor(scale * side / factor) * factor for side in (width, height)]
        if 0 in seen:  # a thin image: one token wide
            longest = min(max(width, height) // min(width, height), area // factor**2) * factor
            return (longest, factor) if width > height else (factor, longest)
        return seen[0], seen[1]

    def tokens(self, width: int, height: int, **limits: int | None) -> int:
        return math.prod(self.size(width, height, **limits)) // self.factor**2

    def marks(self, width: int, height: int, **limits: int | None) -> int:
        return MARKS

    def views(self, width: int, height: int, **limits: int | None) -> list[Size]:
        return [self.size(width, height, **limits)]

    def largest(self, low: int, high: int) -> Size:
        columns, rows = _squarest(high // self.factor**2)
        return columns * self.factor, rows * self.factor

    def capped(self, low: int, high: int, max_pixels: int) -> tuple[int, int]:
        return low, high

    def loses_a_side(self, width: int, height: int, *, max_pixels: int | None = None) -> bool:
        return False

    def limits(
        self, *, model: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        area = int(_preprocessor(model).get("max_soft_tokens") or self.budget) * self.factor**2
        return area, area


ImageRule = SmartResize | Squash | Slices | Budget


def _squarest(area: int) -> tuple[int, int]:
    """The sides of the rectangle of that area that is nearest to a square."""
    rows = next(n for n in range(math.isqrt(area), 0, -1) if area % n == 0)
    return area // rows, rows


def _multiple(length: int, divisor: int) -> int:
    return max(round(length / divisor) * divisor, divisor)


def _number(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "").strip()
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name}={text} is no whole number; a count of pixels is needed") from None


def _limits_of_checkpoint(model: str | Path | None) -> tuple[int, int] | None:
    size = _preprocessor(model).get("size") or {}
    if "shortest_edge" in size and "longest_edge" in size:
        return int(size["shortest_edge"]), int(size["longest_edge"])
    return None


def _preprocessor(model: str | Path | None) -> dict[str, Any]:
    """What a checkpoint's folder says of images; empty for a name on the hub."""
    for name in ("preprocessor_config.json", "processor_config.json") if model else ():
        try:
            config = json.loads((Path(str(model)) / name).read_text())
            return dict(config.get("image_processor") or config)
        except (OSError, ValueError, AttributeError, TypeError):
            continue
    return {}


def capped_size(width: int, height: int, max_pixels: int | None) -> Size:
    """An image's size after ms-swift's flag ``--max_pixels``, which scales the image before the
    family's resize.
    """
    if max_pixels is None or max_pixels <= 0 or width * height <= max_pixels:
        return width, height
    ratio = width / height
    scaled = math.sqrt(max_pixels / ratio)
    return int(scaled * ratio), int(scaled)
