"""Images that take the same room whatever their size: GLM-4V's square, Gemma 4's budget of tokens.

    Squash(factor=28, side=1120).size(640, 480)     (1120, 1120)
    Budget(factor=48, budget=280).size(640, 480)    (912, 672)

Source: transformers' image processor of Gemma 4, and the published code of GLM-4V.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from swift_vlrft.families.resize import ImageRule, of_image_processor, squarest
from swift_vlrft.geometry.box_format import Size


@dataclass(frozen=True, kw_only=True)
class Squash(ImageRule):
    """Every image becomes ``side`` x ``side`` pixels, whatever its shape. No limit changes that;
    ``min_pixels`` and ``max_pixels`` are the square's area, which a tiny checkpoint's config.json
    makes smaller.
    """

    side: int

    @property
    def min_pixels(self) -> int:
        return self.side**2

    @property
    def max_pixels(self) -> int:
        return self.side**2

    def seen_as(self, width: int, height: int, low: int, high: int) -> Size:
        side = math.isqrt(low)
        return side, side

    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        return self.size(1, 1, min_pixels=min_pixels)

    def limits_of(self, model: str | Path | None, environ: Mapping[str, str]) -> tuple[int, int]:
        side = self.side
        if model is not None:
            try:
                values = json.loads((Path(model) / "config.json").read_text())
                side = int(values["vision_config"]["image_size"])
            except (OSError, ValueError, KeyError, TypeError):
                pass  # a name on the hub, or a folder without one
        return side**2, side**2


@dataclass(frozen=True, kw_only=True)
class Budget(ImageRule):
    """Scale every image to as many tokens as fit in ``budget`` and in its shape.

    ``min_pixels`` and ``max_pixels`` are the area of the budget, which is the checkpoint's: 70,
    140, 280, 560 or 1120 tokens.
    """

    budget: int
    seen: ClassVar[str] = "within the same budget of tokens"

    @property
    def min_pixels(self) -> int:
        return self.max_pixels

    @property
    def max_pixels(self) -> int:
        return self.budget * self.factor**2

    def seen_as(self, width: int, height: int, low: int, high: int) -> Size:
        factor = self.factor
        scale = math.sqrt(high / (height * width))
        seen = [math.floor(scale * side / factor) * factor for side in (width, height)]
        if 0 in seen:  # a thin image: one token wide
            longest = min(max(width, height) // min(width, height), high // factor**2) * factor
            return (longest, factor) if width > height else (factor, longest)
        return seen[0], seen[1]

    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        columns, rows = squarest(max_pixels // self.factor**2)
        return columns * self.factor, rows * self.factor

    def limits_of(self, model: str | Path | None, environ: Mapping[str, str]) -> tuple[int, int]:
        tokens = of_image_processor(model, "max_soft_tokens") or self.budget
        return int(tokens) * self.factor**2, int(tokens) * self.factor**2
