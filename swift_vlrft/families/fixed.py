"""Images that take the same room whatever their size: GLM-4V's square, Gemma 4's budget of tokens.

    square = Squash(factor=28, min_pixels=1120**2, max_pixels=1120**2)
    square.size(640, 480)       (1120, 1120)
    budget = Budget(factor=48, min_pixels=280 * 48**2, max_pixels=280 * 48**2)
    budget.size(640, 480)       (912, 672)

Source: transformers' image processor of Gemma 4, and the published code of GLM-4V.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from swift_vlrft.families.resize import ImageRule, squarest
from swift_vlrft.geometry.box_format import Size


@dataclass(frozen=True, kw_only=True)
class Squash(ImageRule):
    """Every image becomes the same square, whatever its shape. No limit changes that: both are the
    square's area, which a tiny checkpoint's config.json makes smaller.
    """

    def _parts(self, width: int, height: int) -> list[Size]:
        return [self.largest()]

    def largest(self) -> Size:
        side = math.isqrt(self.min_pixels)
        return side, side

    def _limits(self, said: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[int, int]:
        side = said.get("image_size")
        area = int(side) ** 2 if side else self.min_pixels
        return area, area


@dataclass(frozen=True, kw_only=True)
class Budget(ImageRule):
    """Scale every image to as many tokens as its shape and the budget allow.

    ``min_pixels`` and ``max_pixels`` are the area of the budget, which is the checkpoint's: 70,
    140, 280, 560 or 1120 tokens.
    """

    seen: ClassVar[str] = "within the same budget of tokens"

    def _parts(self, width: int, height: int) -> list[Size]:
        factor, area = self.factor, self.max_pixels
        scale = math.sqrt(area / (height * width))
        seen = [math.floor(scale * side / factor) * factor for side in (width, height)]
        if 0 in seen:  # a thin image: one token wide
            longest = min(max(width, height) // min(width, height), area // factor**2) * factor
            return [(longest, factor) if width > height else (factor, longest)]
        return [(seen[0], seen[1])]

    def largest(self) -> Size:
        columns, rows = squarest(self.max_pixels // self.factor**2)
        return columns * self.factor, rows * self.factor

    def _limits(self, said: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[int, int]:
        tokens = said.get("max_soft_tokens")
        area = int(tokens) * self.factor**2 if tokens else self.max_pixels
        return area, area
