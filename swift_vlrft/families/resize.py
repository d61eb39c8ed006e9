"""How a model's processor resizes an image, and how many tokens the result takes.

    rule = SmartResize(factor=28, min_pixels=3136, max_pixels=12_845_056)
    rule.size(640, 480)                         (644, 476)
    rule.tokens(640, 480)                       391
    rule.size(640, 480, max_pixels=100_000)     (364, 252)

Sources: qwen-vl-utils (``smart_resize``, which ms-swift calls for Qwen), transformers' GLM-4.1V
image processor (``smart_resize`` with a time axis of two frames) and GotOcr2 image processor, which
is InternVL's (``get_optimal_tiled_canvas``). They import torch; this does not.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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
    adjustable: ClassVar[bool] = True
    """Whether a variable or a flag makes the images smaller."""

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

    def parts(self, width: int, height: int, **limits: int | None) -> list[Size]:
        """Sizes of the pictures that the ViT gets of one image."""
        return [self.size(width, height, **limits)]

    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        """An image that takes as many tokens as any, under these limits."""
        side = max(1, int((max_pixels / self.frames) ** 0.5))
        return side, side

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
    adjustable: ClassVar[bool] = False

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

    def parts(self, width: int, height: int, **limits: int | None) -> list[Size]:
        return [self.size(width, height, **limits)]

    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        return self.size(1, 1, min_pixels=min_pixels)

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
class Tiles:
    """An image is resized to a canvas of ``side`` x ``side`` tiles, whose shape is the nearest to
    its own, and cut into them; of more than one tile there is a thumbnail beside. ``factor`` x
    ``factor`` pixels are one token.

    ``min_pixels`` is the area of one tile, ``max_pixels`` that of the most tiles of one image. Both
    are the checkpoint's, ``size`` and ``max_patches``: no flag or variable changes them.
    """

    factor: int
    side: int
    most: int
    frames: int = 1
    from_environment: bool = False
    adjustable: ClassVar[bool] = False

    @property
    def min_pixels(self) -> int:
        return self.side**2

    @property
    def max_pixels(self) -> int:
        return self.most * self.side**2

    def size(
        self,
        width: int,
        height: int,
        *,
        min_pixels: int | None = None,
        max_pixels: int | None = None,
    ) -> Size:
        """Width and height of the canvas."""
        if width < 1 or height < 1:
            raise ValueError(f"an image of {width} x {height} pixels has no area")
        tile = min_pixels or self.min_pixels
        most = (max_pixels or self.max_pixels) // tile
        counts = range(1, most + 1)
        grids = [(columns, rows) for columns in counts for rows in counts if columns * rows <= most]
        best, nearest = (1, 1), math.inf
        for columns, rows in sorted(grids, key=math.prod):
            away = abs(width / height - columns / rows)
            # Of canvases of the same shape the larger one, unless the image has half its area.
            larger = away == nearest and width * height > 0.5 * tile * columns * rows
            if away < nearest or larger:
                best, nearest = (columns, rows), away
        side = math.isqrt(tile)
        return best[0] * side, best[1] * side

    def parts(self, width: int, height: int, **limits: int | None) -> list[Size]:
        """The tiles, and the thumbnail."""
        side = math.isqrt(limits.get("min_pixels") or self.min_pixels)
        tiles = math.prod(self.size(width, height, **limits)) // side**2
        return [(side, side)] * (tiles + (tiles > 1))

    def tokens(self, width: int, height: int, **limits: int | None) -> int:
        return sum(map(math.prod, self.parts(width, height, **limits))) // self.factor**2

    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        side = math.isqrt(min_pixels)
        return max_pixels // min_pixels * side, side

    def loses_a_side(self, width: int, height: int, *, max_pixels: int | None = None) -> bool:
        return False

    def limits(
        self, *, model: str | Path | None = None, environ: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        values = next(_image_processors(model), {})
        size = values.get("size") or {}
        tile = int(size.get("height", self.side)) * int(size.get("width", self.side))
        return tile, tile * int(values.get("max_patches") or self.most)


ImageRule = SmartResize | Squash | Tiles


def _number(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "").strip()
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name}={text} is no whole number; a count of pixels is needed") from None


def _image_processors(model: str | Path | None) -> Iterator[dict[str, Any]]:
    """What the folder of a checkpoint says of its image processor."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        try:
            config = json.loads((Path(model or "") / name).read_text())
            yield {**config, **config.get("image_processor", {})}
        except (OSError, ValueError, TypeError, AttributeError):
            continue  # a name on the hub, or a folder without one


def _limits_of_checkpoint(model: str | Path | None) -> tuple[int, int] | None:
    for values in _image_processors(model):
        size = values.get("size") or {}
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
