"""Find the longest row of a data set by the images' headers: the plan is for this row.

    longest_row("data/train.parquet", model.image_rule.within(3136, 602112))
    -> Longest(source="data/train.parquet", images=((1024, 768),), text=143)

Any set that training reads (datasets/opening.py), but for ms-swift's own rows.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.box_format import refuse_part_of_set
from swift_vlrft.datasets.opening import find_set
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.schemas import schema_of
from swift_vlrft.datasets.storage import StoredSet, image_of
from swift_vlrft.families.resize import ImageRule
from swift_vlrft.geometry.box_format import Size

CHARACTERS = 3
"""Characters per token; English has about 4, JSON and numbers about 2.5."""


@dataclass(frozen=True)
class Longest:
    source: str
    images: tuple[Size, ...]  # Width and height in the file, before any resize
    text: int  # Tokens of the longest prompt's text of any row
    answer: int  # Of the longest answer

    def sizes(self, rule: ImageRule) -> list[Size]:
        """Return the sizes of the pictures that the ViT gets."""
        return [part for size in self.images for part in rule.parts(*size)]


def longest_row(path: str | Path, rule: ImageRule, room: int | None = None) -> Longest:
    """Find the longest row whose images take fewer tokens than ``room``: ms-swift leaves others out
    of supervised training. ValueError says which file or row cannot be read.
    """
    source = Path(path).expanduser()
    if not source.exists():
        refuse_part_of_set(str(source), "PATH, for whose longest row is planned")
        raise ValueError(f"--dataset {path} does not exist (from {Path.cwd()})")
    stored = find_set(source)

    @cache
    def tokens(size: Size) -> int:
        return rule.tokens(*size)

    most, characters, answers = -1, 0, 0
    images: tuple[Size, ...] = ()
    for place, image, text, answer in _rows(stored):
        try:
            size = _size(image, stored.root or stored.folder)
            count = tokens(size)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if room and count >= room:
            continue
        if count > most:
            most, images = count, (size,)
        characters, answers = max(characters, len(text)), max(answers, len(answer))
    if most < 0:
        of = f" whose images leave room in --max_length {room}" if room else ""
        raise ValueError(f"--dataset {path}: there are no rows in it{of}")
    return Longest(str(path), images, -(-characters // CHARACTERS), -(-answers // CHARACTERS))


def _rows(stored: StoredSet) -> Iterator[tuple[RowLocation, Any, str, str]]:
    """Yield place, image, the prompt's text and the answer of every row."""
    if schema_of(columns := set(stored.columns)) is None or columns & {"messages", "query"}:
        raise ValueError(
            f"{stored.path} has the columns {', '.join(stored.columns)}: it is no set that "
            "`vlrft data check` reads, and rows of ms-swift's own form are not counted; leave out "
            "--dataset: every image is planned as large as its limit allows"
        )
    for row in rows_of(stored):
        if isinstance(row, BadRow):
            raise ValueError(f"{row.place}: {row.problem}")
        text = f"{row.columns.get('system') or ''}{row.problem}"
        yield row.place, row.image, text, str(row.solution)


def _size(image: Any, folder: Path) -> Size:
    """Read the size of an image, in bytes or at a path relative to here or to ``folder``."""
    from PIL import Image

    path = image.get("path") if isinstance(image, dict) and not image.get("bytes") else image
    if isinstance(path, str) and os.path.isfile(path):
        image = os.path.abspath(path)
    source = image_of(image, folder, None)
    try:
        content = source["bytes"]
        with Image.open(source["path"] if content is None else io.BytesIO(content)) as opened:
            return opened.size
    except (OSError, TypeError, AttributeError) as error:
        raise ValueError(f"its image cannot be read ({error})") from None
