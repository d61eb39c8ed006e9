"""Name the place of a row, and the size of the image that its boxes were drawn on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RowLocation:
    """The place of a row, for messages: rows count from 0 within their file; in COCO's annotations
    it is an image, by its id. Without a row it is the file as a whole.
    """

    file: Path
    row: int | None = None
    what: str = "row"

    def __str__(self) -> str:
        return str(self.file) if self.row is None else f"{self.file}, {self.what} {self.row}"


@dataclass(frozen=True)
class AnnotatedSize:
    """The size of the image that boxes were drawn on, as its source states it. ``name`` is what the
    source calls it ("image 9"). Not ``exact``: boxes in thousandths fit a copy of any size.
    """

    width: float
    height: float
    name: str = ""
    exact: bool = True
