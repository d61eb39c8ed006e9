"""Images that are cut in parts of one size: InternVL's tiles, MiniCPM-V's slices.

    rule = Tiles(factor=28, min_pixels=448**2, max_pixels=12 * 448**2)
    rule.size(640, 480)                         (1792, 1344)
    len(rule.parts(640, 480))                   13, with the thumbnail

Sources: transformers' image processors GotOcr2, which is InternVL's (``get_optimal_tiled_canvas``),
and MiniCPM-V 4.6's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from swift_vlrft.families.resize import ImageRule, multiple, number_in, squarest
from swift_vlrft.geometry.box_format import Size


class _Cut(ImageRule):
    """``min_pixels`` is the area of one part, ``max_pixels`` that of the most parts."""

    @property
    def side(self) -> int:
        return math.isqrt(self.min_pixels)

    @property
    def most(self) -> int:
        return self.max_pixels // self.min_pixels


@dataclass(frozen=True, kw_only=True)
class Tiles(_Cut):
    """Resize an image to square tiles of the nearest shape, and cut it into them.

    Of more than one tile there is a thumbnail beside, which ``max_pixels`` does not count. The
    limits are the checkpoint's, ``size`` and ``max_patches``: no flag or variable changes them.
    """

    seen: ClassVar[str] = "in tiles of one size"

    def grid(self, width: int, height: int) -> Size:
        counts = range(1, self.most + 1)
        grids = [(n, rows) for n in counts for rows in counts if n * rows <= self.most]
        best, nearest = (1, 1), math.inf
        for columns, rows in sorted(grids, key=math.prod):
            away = abs(width / height - columns / rows)
            # Of canvases of the same shape the larger one, unless the image has half its area.
            canvas = self.min_pixels * columns * rows
            if away < nearest or (away == nearest and width * height > 0.5 * canvas):
                best, nearest = (columns, rows), away
        return best

    def _parts(self, width: int, height: int) -> list[Size]:
        tiles = math.prod(self.grid(width, height))
        return [(self.side, self.side)] * (tiles + (tiles > 1))

    def largest(self) -> Size:
        return self.most * self.side, self.side

    def _limits(self, said: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[int, int]:
        size = said.get("size", {})
        tile = int(size.get("height", self.side)) * int(size.get("width", self.side))
        return tile, tile * int(said.get("max_patches", self.most))


@dataclass(frozen=True, kw_only=True)
class Slices(_Cut):
    """Show the whole image in one view, and a larger one also cut in a grid of views.

    Their sides are multiples of ``factor``; a tiny checkpoint's preprocessor_config.json makes
    views smaller.
    """

    adjustable: ClassVar[bool] = True

    def marks(self, width: int, height: int) -> int:
        """Count the views' tokens and what the template writes around them.

        The image's number between two tokens, the line break of ms-swift's template, two tokens
        around each slice, and a line break between their rows.
        """
        columns, rows = self.grid(width, height)
        around = 2 * columns * rows + rows - 1 if columns * rows > 1 else 0
        return super().marks(width, height) + 4 + around

    def _parts(self, width: int, height: int) -> list[Size]:
        columns, rows = self.grid(width, height)
        whole = self._fitted(width, height)
        if columns * rows == 1:
            return [whole]
        slice_ = multiple(width, columns) / columns, multiple(height, rows) / rows
        return [whole] + [self._fitted(*slice_)] * (columns * rows)

    def largest(self) -> Size:
        """Rounding of the sides gives some shapes an eighth more tokens."""
        columns, rows = squarest(max(1, self.most - 1))
        return self.side * columns, self.side * rows

    def capped(self, flag: int) -> Self:
        """An image is cut in one slice more at most than its area needs."""
        needed = math.ceil(flag / self.min_pixels)
        views = 1 + (needed + 1 if needed > 1 else 1)
        return self.within(max_pixels=min(self.max_pixels, views * self.min_pixels))

    def _limits(self, said: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[int, int]:
        """Return the limits: slices from MAX_SLICE_NUMS, else 9; views from the checkpoint."""
        area = int(said.get("scale_resolution", self.side)) ** 2
        slices = number_in(environ, "MAX_SLICE_NUMS")
        return area, (self.most if slices is None else 1 + slices) * area

    def grid(self, width: int, height: int) -> Size:
        """Return columns and rows of the slices: the grid whose shape is nearest to the image's."""
        most = self.most - 1
        needed = min(math.ceil(width * height / self.side**2), most)
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

    def _fitted(self, width: float, height: float) -> Size:
        ratio = width / height
        rows = int(self.side / math.sqrt(ratio))
        columns = int(rows * ratio)
        return multiple(columns, self.factor), multiple(rows, self.factor)
