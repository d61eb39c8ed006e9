"""The longest row of a data set, from the images' headers: the plan is for it, not for the mean.

    longest_row("data/train.parquet", "qwen2_5_vl", 3136, 602112)
    -> Longest(source="data/train.parquet", images=((1024, 768),), text=143)

Parquet with a column of images (bytes or paths), or JSON Lines in ms-swift's form
({"images": [...], "messages": [...]}).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.families.coordinates import Size, image_tokens, resized_size
from swift_vlrft.files.jsonl import Broken, json_lines

CHARACTERS = 3
"""Per token; English has about four, JSON and numbers about two and a half."""


@dataclass(frozen=True)
class Longest:
    source: str
    images: tuple[Size, ...]
    """Width and height in the file, before any resize."""
    text: int
    """Tokens of the longest text, of whichever row."""

    def sizes(self, family: str, low: int, high: int) -> list[Size]:
        return [
            resized_size(family, *size, min_pixels=low, max_pixels=high) for size in self.images
        ]


def longest_row(path: str | Path, family: str, low: int, high: int) -> Longest:
    """ValueError says which file or row cannot be read."""
    source = Path(path).expanduser()
    if not source.exists():
        raise ValueError(f"--dataset {path}: no such file or folder")
    best: tuple[int, tuple[Size, ...]] = (-1, ())
    text = 0
    seen: dict[Size, int] = {}
    for row, (images, characters) in enumerate(_rows(source)):
        sizes = []
        for image in images:
            size = _size(image, source, row)
            if size not in seen:
                try:
                    seen[size] = image_tokens(family, *size, min_pixels=low, max_pixels=high)
                except ValueError as error:
                    raise ValueError(f"{source}, row {row}: {error}") from None
            sizes.append(size)
        tokens = sum(seen[size] for size in sizes)
        if tokens > best[0]:
            best = (tokens, tuple(sizes))
        text = max(text, characters)
    if best[0] < 0:
        raise ValueError(f"--dataset {path}: no rows in it")
    return Longest(str(path), best[1], -(-text // CHARACTERS))


def _rows(source: Path) -> Iterator[tuple[list[Any], int]]:
    if source.suffix in (".jsonl", ".json"):
        yield from _json_rows(source)
        return
    from swift_vlrft.datasets.opening import parquet_files

    files = parquet_files(source)
    if not files:
        lines = sorted(source.glob("*.jsonl")) if source.is_dir() else []
        if not lines:
            raise ValueError(f"{source}: neither Parquet nor JSON Lines in it")
        for file in lines:
            yield from _json_rows(file)
        return
    import pyarrow.parquet as pq

    for file in files:
        reader = pq.ParquetFile(file)
        wanted = ("image", "images", "problem", "messages", "query")
        names = [name for name in wanted if name in reader.schema_arrow.names]
        for batch in reader.iter_batches(batch_size=64, columns=names):
            yield from (_row(row, file.parent) for row in batch.to_pylist())


def _json_rows(file: Path) -> Iterator[tuple[list[Any], int]]:
    for number, row in json_lines(file):
        if isinstance(row, Broken):
            raise ValueError(row.problem)
        if not isinstance(row, dict):
            raise ValueError(f"{file}, line {number}: not an object")
        yield _row(row, file.parent)


def _row(row: dict[str, Any], folder: Path) -> tuple[list[Any], int]:
    images = row.get("images", row.get("image"))
    if images is None:
        images = []
    elif not isinstance(images, list):
        images = [images]
    text = row.get("problem") or row.get("query") or ""
    if isinstance(row.get("messages"), list):
        text = "".join(str(m.get("content", "")) for m in row["messages"] if isinstance(m, dict))
    return [_placed(image, folder) for image in images if image], len(str(text))


def _placed(image: Any, folder: Path) -> Any:
    """Bytes, or a path from the data set's own folder where it is not found from here."""
    if isinstance(image, dict):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, str) and not Path(image).is_file():
        return folder / image
    return image


def _size(image: Any, source: Path, row: int) -> Size:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
            return opened.size
    except (OSError, UnidentifiedImageError, TypeError, AttributeError) as error:
        raise ValueError(f"{source}, row {row}: its image cannot be read ({error})") from None
