"""Find the longest row of a data set by the images' headers: the plan is for this row.

    longest_row("data/train.parquet", model.image_rule.within(3136, 602112))
    -> Longest(source="data/train.parquet", images=((1024, 768),), text=143)

Any set that training reads (datasets/opening.py), or rows in ms-swift's form
({"images": [...], "messages": [...]}).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.image import image_size
from swift_vlrft.datasets.opening import find_set
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.schemas import schema_of
from swift_vlrft.datasets.storage import StoredSet, image_of
from swift_vlrft.families.resize import ImageRule
from swift_vlrft.geometry.box_format import Size

CHARACTERS = 3
"""Characters per token; English has about 4, JSON and numbers about 2.5."""

COLUMNS = ("image", "images", "problem", "messages", "query", "response", "videos")


@dataclass(frozen=True)
class Longest:
    source: str
    images: tuple[Size, ...]  # Width and height in the file, before any resize
    text: int  # Tokens of the longest prompt's text of any row
    answer: int  # Of the longest answer


def longest_row(path: str | Path, rule: ImageRule, room: int | None = None) -> Longest:
    """Find the longest row whose images take fewer tokens than ``room``: ms-swift leaves others out
    of supervised training. ValueError says which file or row cannot be read.
    """
    source = Path(path).expanduser()
    if not source.exists():
        raise ValueError(f"--dataset {path} does not exist (from {Path.cwd()})")
    stored = find_set(source)

    @cache
    def tokens(size: Size) -> int:
        return rule.tokens(*size)

    most, characters, answers = -1, 0, 0
    images: tuple[Size, ...] = ()
    for place, pictures, text, answer in _rows(stored):
        try:
            sizes = tuple(_size(image, stored.root or stored.folder) for image in pictures)
            count = sum(map(tokens, sizes))
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if room and count >= room:
            continue
        if count > most:
            most, images = count, sizes
        characters, answers = max(characters, len(text)), max(answers, len(answer))
    if most < 0:
        of = f" whose images leave room in --max_length {room}" if room else ""
        raise ValueError(f"--dataset {path}: there are no rows in it{of}")
    return Longest(str(path), images, -(-characters // CHARACTERS), -(-answers // CHARACTERS))


def _rows(stored: StoredSet) -> Iterator[tuple[RowLocation, list[Any], str, str]]:
    """Yield place, images, the prompt's text and the answer of every row."""
    columns = set(stored.columns)
    if schema_of(columns) is not None and not columns & {"messages", "query"}:
        for row in map(_good, rows_of(stored)):
            if row.image.get("video"):
                raise ValueError(
                    f"{row.place}: videos are planned by FPS_MAX_FRAMES and VIDEO_MAX_PIXELS, at "
                    "the most; leave --dataset out"
                )
            text = f"{row.columns.get('system') or ''}{row.problem}"
            yield row.place, [row.image], text, str(row.solution)
        return
    if columns and not columns & set(COLUMNS):
        raise ValueError(
            f"{stored.path} has the columns {', '.join(stored.columns)}; one of "
            f"{', '.join(COLUMNS)} is needed"
        )
    for place, record in map(_good, stored.records(COLUMNS)):
        if record.get("videos"):
            raise ValueError(f"{place}: a row with videos, which are not planned; leave it out")
        images = record.get("images", record.get("image")) or []
        images = images if isinstance(images, list) else [images]
        yield place, [image for image in images if image], *_texts(record)


def _good(value: Any) -> Any:
    if isinstance(value, BadRow):
        raise ValueError(f"{value.place}: {value.problem}")
    return value


def _texts(record: dict[str, Any]) -> tuple[str, str]:
    """Return the prompt and the answer, which is the assistant's last turn."""
    if not isinstance(turns := record.get("messages"), list):
        prompt = record.get("problem") or record.get("query") or ""
        return str(prompt), str(record.get("response") or "")
    turns = [turn for turn in turns if isinstance(turn, dict)]
    last = [turns.pop()] if turns and turns[-1].get("role") == "assistant" else []
    prompt, answer = ("".join(str(t.get("content", "")) for t in part) for part in (turns, last))
    return prompt, answer


def _size(image: Any, folder: Path) -> Size:
    """Read the size of an image, in bytes or at a path relative to here or to ``folder``."""
    path = image.get("path") if isinstance(image, dict) and not image.get("bytes") else image
    if isinstance(path, str) and os.path.isfile(path):
        image = os.path.abspath(path)
    size = image_size(image_of(image, folder, None))
    return size.width, size.height
