"""Images that are cut in parts of one size: InternVL's tiles, MiniCPM-V's slices.

    rule = Tiles(factor=28, side=448, most=12)
    rule.size(640, 480)                         (1792, 1344)
    len(rule.parts(640, 480))                   13, with the thumbnail

Sources: transformers' image processors GotOcr2, which is InternVL's (``get_optimal_tiled_canvas``),
and MiniCPM-V 4.6's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from swift_vlrft.families.resize import (
    ImageRule,
    number_in,
    of_image_processor,
    squarest,
)
from swift_vlrft.geometry.box_format import Size


@dataclass(frozen=True, kw_only=True)
class Tiles(ImageRule):
    """Resize an image to ``side`` x ``side`` tiles of the nearest shape, and cut it into them.

    Of more than one tile there is a thumbnail beside. ``min_pixels`` is the area of one tile,
    ``max_pixels`` that of the most tiles of one image. Both are the checkpoint's, ``size`` and
    ``max_patches``: no flag or variable changes them.
    """

    side: int
    most: int
    seen: ClassVar[str] = "in tiles of one size"

    @property
    def min_pixels(self) -> int:
        return self.side**2

    @property
    def max_pixels(self) -> int:
        return self.most * self.side**2

    def seen_as(self, width: int, height: int, low: int, high: int) -> Size:
        """Return the size of the canvas."""
        most = high // low
        counts = range(1, most + 1)
        grids = [(columns, rows) for columns in counts for rows in counts if columns * rows <= most]
        best, nearest = (1, 1), math.inf
        for columns, rows in sorted(grids, key=math.prod):
            away = abs(width / height - columns / rows)
            # Of canvases of the same shape the larger one, unless the image has half its area.
            larger = away == nearest and width * height > 0.5 * low * columns * rows
            if away < nearest or larger:
                best, nearest = (columns, rows), away
        side = math.isqrt(low)
        return best[0] * side, best[1] * side

    def parts(self, width: int, height: int, **limits: int | None) -> list[Size]:
        """Return the sizes of the tiles, and of the thumbnail."""
        low, high = self.bounds(width, height, **limits)
        side = math.isqrt(low)
        tiles = math.prod(self.seen_as(width, height, low, high)) // side**2
        return [(side, side)] * (tiles + (tiles > 1))

    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        side = math.isqrt(min_pixels)
        return max_pixels // min_pixels * side, side

    def limits_of(self, model: str | Path | None, environ: Mapping[str, str]) -> tuple[int, int]:
        size = of_image_processor(model, "size") or {}
        tile = int(size.get("height", self.side)) * int(size.get("width", self.side))
        return tile, tile * int(of_image_processor(model, "max_patches") or self.most)


@dataclass(frozen=True, kw_only=True)
class Slices(ImageRule):
    """Show the whole image in one view, and a larger one also cut in a grid of views.

    A view has about ``side`` x ``side`` pixels, its sides are multiples of ``factor``, and there
    are up to ``slices`` of them in the grid. ``min_pixels`` is the area of one view and
    ``max_pixels`` that of all; a tiny checkpoint's preprocessor_config.json makes views smaller.
    """

    side: int
    slices: int
    adjustable: ClassVar[bool] = True

    @property
    def min_pixels(self) -> int:
        return self.side**2

    @property
    def max_pixels(self) -> int:
        return (1 + self.slices) * self.side**2

    def seen_as(self, width: int, height: int, low: int, high: int) -> Size:
        """Return the size in the finest views."""
        columns, rows = self._grid(width, height, low, high)
        seen = self.parts(width, height, min_pixels=low, max_pixels=high)[-1]
        return seen[0] * columns, seen[1] * rows

    def marks(self, width: int, height: int, **limits: int | None) -> int:
        """Count the views' tokens and what the template writes around them.

        The image's number between two tokens, the line break of ms-swift's template, two tokens
        around each slice, and a line break between their rows.
        """
        columns, rows = self._grid(width, height, *self.bounds(width, height, **limits))
        around = 2 * columns * rows + rows - 1 if columns * rows > 1 else 0
        return super().marks(width, height) + 4 + around

    def parts(self, width: int, height: int, **limits: int | None) -> list[Size]:
        low, high = self.bounds(width, height, **limits)
        side, (columns, rows) = math.isqrt(low), self._grid(width, height, low, high)
        whole = self._fitted(width, height, side)
        if columns * rows == 1:
            return [whole]
        slice_ = _multiple(width, columns) / columns, _multiple(height, rows) / rows
        return [whole] + [self._fitted(*slice_, side)] * (columns * rows)

    def largest(self, min_pixels: int, max_pixels: int) -> Size:
        """Rounding of the sides gives some shapes an eighth more tokens."""
        side = math.isqrt(min_pixels)
        columns, rows = squarest(max(1, max_pixels // min_pixels - 1))
        return side * columns, side * rows

    def capped(self, min_pixels: int, max_pixels: int, flag: int) -> tuple[int, int]:
        """An image is cut in one slice more at most than its area needs."""
        needed = math.ceil(flag / min_pixels)
        views = 1 + (needed + 1 if needed > 1 else 1)
        return min_pixels, min(max_pixels, views * min_pixels)

    def limits_of(self, model: str | Path | None, environ: Mapping[str, str]) -> tuple[int, int]:
        """Return the limits: slices from MAX_SLICE_NUMS, else 9; views from the checkpoint."""
        side = int(of_image_processor(model, "scale_resolution") or self.side)
        slices = number_in(environ, "MAX_SLICE_NUMS")
        return side**2, (1 + (self.slices if slices is None else slices)) * side**2

    def _grid(self, width: int, height: int, low: int, high: int) -> tuple[int, int]:
        """Return columns and rows of the slices: the grid whose shape is nearest to the image's."""
        side, most = math.isqrt(low), high // low - 1
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


def _multiple(length: int, divisor: int) -> int:
    return max(round(length / divisor) * divisor, divisor)
