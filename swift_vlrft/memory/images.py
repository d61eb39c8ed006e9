"""The longest row of a data set, from the images' headers: the plan is for this row.

    longest_row("data/train.parquet", model.image_rule, 3136, 602112)
    -> Longest(source="data/train.parquet", images=((1024, 768),), text=143)

Parquet with a column of images (bytes or paths), or JSON Lines in ms-swift's form
({"images": [...], "messages": [...]}).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.opening import parquet_files
from swift_vlrft.families.resize import SmartResize
from swift_vlrft.files.jsonl import Broken, json_lines
from swift_vlrft.geometry.box_format import Size

CHARACTERS = 3
"""Characters per token; English has about 4, JSON and numbers about 2.5."""

COLUMNS = ("image", "images", "problem", "messages", "query")


@dataclass(frozen=True)
class Longest:
    source: str
    images: tuple[Size, ...]
    """Width and height in the file, before any resize."""
    text: int
    """Tokens of the longest text of any row."""

    def sizes(self, rule: SmartResize, low: int, high: int) -> list[Size]:
        return [rule.size(*size, min_pixels=low, max_pixels=high) for size in self.images]


def longest_row(path: str | Path, rule: SmartResize, low: int, high: int) -> Longest:
    """ValueError says which file or row cannot be read."""
    source = Path(path).expanduser()
    if not source.exists():
        raise ValueError(f"--dataset {path}: no such file or folder")

    @cache
    def tokens(size: Size) -> int:
        return rule.tokens(*size, min_pixels=low, max_pixels=high)

    most, characters = -1, 0
    images: tuple[Size, ...] = ()
    for number, (row, folder) in enumerate(_rows(source)):
        try:
            sizes = tuple(_size(image, folder) for image in _images(row))
            count = sum(map(tokens, sizes))
        except ValueError as error:
            raise ValueError(f"{source}, row {number}: {error}") from None
        if count > most:
            most, images = count, sizes
        characters = max(characters, len(_text(row)))
    if most < 0:
        raise ValueError(f"--dataset {path}: no rows in it")
    return Longest(str(path), images, -(-characters // CHARACTERS))


def _rows(source: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Every row, and the folder that image paths are relative to."""
    lines = [source] if source.suffix in (".jsonl", ".json") else []
    files = [] if lines else parquet_files(source)
    if not files and source.is_dir():
        lines = sorted(source.glob("*.jsonl"))
    if not files and not lines:
        raise ValueError(f"{source}: neither Parquet nor JSON Lines in it")
    for file in lines:
        for number, row in json_lines(file):
            if isinstance(row, Broken):
                raise ValueError(row.problem)
            if not isinstance(row, dict):
                raise ValueError(f"{file}, line {number}: not an object")
            yield row, file.parent
    import pyarrow.parquet as pq

    for file in files:
        reader = pq.ParquetFile(file)
        names = [name for name in COLUMNS if name in reader.schema_arrow.names]
        for batch in reader.iter_batches(batch_size=64, columns=names):
            yield from ((row, file.parent) for row in batch.to_pylist())


def _images(row: dict[str, Any]) -> list[Any]:
    images = row.get("images", row.get("image")) or []
    return [image for image in (images if isinstance(images, list) else [images]) if image]


def _text(row: dict[str, Any]) -> str:
    if isinstance(turns := row.get("messages"), list):
        return "".join(str(turn.get("content", "")) for turn in turns if isinstance(turn, dict))
    return str(row.get("problem") or row.get("query") or "")


def _size(image: Any, folder: Path) -> Size:
    """Size of an image in bytes or at a path, relative to here or to the data set's folder."""
    from PIL import Image

    if isinstance(image, dict):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, str) and not Path(image).is_file():
        image = folder / image
    try:
        with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
            return opened.size
    except (OSError, TypeError, AttributeError) as error:
        raise ValueError(f"its image cannot be read ({error})") from None
