"""Rows are read from JSON, a line for each or one list.

rows.jsonl    {"image": "1.png", "problem": "What is it?", "solution": "rose"}
rows.json     [{"image": "1.png", ...}, ...], {"data": [...]}, or lines as in rows.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import FileError
from swift_vlrft.datasets.storage import Records, StoredSet
from swift_vlrft.datasets.video_rows import sentences_of
from swift_vlrft.files.jsonl import Broken, LineError, json_lines, read_json

FIRST_LINES = 100
"""Records whose keys are the columns of the set."""


@dataclass
class JsonFiles(StoredSet):
    """A set in JSON Lines or a JSON list."""

    def add(self, file: Path) -> None:
        columns = dict.fromkeys(self.names)
        for number, row in enumerate(_rows(file)):
            if not isinstance(row, BadRow):
                columns |= dict.fromkeys(row[1])
            if number >= FIRST_LINES and columns:
                break
        self.names = list(columns)
        self.files.append(file)

    def _read(self, names: list[str]) -> Records:
        return chain.from_iterable(map(_rows, self.files))


def _rows(file: Path) -> Records:
    with json_errors(file):
        if file.suffix.lower() == ".jsonl" or is_lines(file):
            values = ((f"line {number}", value) for number, value in json_lines(file))
        else:
            content = _listed_in(file, read_json(file))
            values = ((f"row {number}", value) for number, value in enumerate(content))
        for row, (line, record) in enumerate(values):
            place = RowLocation(file, row)
            if isinstance(record, dict):
                yield place, record
            elif isinstance(record, Broken):
                yield BadRow(place, f"{line}: {record.problem}")
            else:
                yield BadRow(place, f"{line}: an object is needed, found {str(record)[:80]!r}")


def _listed_in(file: Path, content: Any) -> list[Any]:
    """The rows of a JSON file: the list that it is, or its list ``data`` beside the set's name and
    version, as in DocVQA and TextVQA, or a row a sentence of its videos.
    """
    rows = content
    if isinstance(content, dict):
        rows = content.get("data", sentences_of(content))
    if isinstance(rows, list):
        return rows
    keys = (", ".join(content) if isinstance(content, dict) else str(content))[:200] or "no key"
    raise FileError(
        file,
        f"it holds one object with {keys}; a list of rows is needed (also under data), or, as a "
        "file alone, COCO's images, annotations and categories",
    )


@contextmanager
def json_errors(file: Path) -> Iterator[None]:
    """Raise the problem of a JSON file as a FileError."""
    try:
        yield
    except OSError as error:
        raise FileError(file, f"cannot be read ({error})") from error
    except LineError as error:
        raise FileError(file, error.problem) from error


def is_lines(file: Path) -> bool:
    """Tell whether the first line is a row: ``Dataset.to_json("rows.json")`` writes such files."""
    try:
        with open(file, "rb") as lines:
            first = lines.readline(1 << 20)
            if not first.endswith(b"\n") or not any(line.strip() for line in lines):
                return False  # one object, one list, or a line as long as a whole file
        return isinstance(json.loads(first.decode("utf-8-sig")), dict)
    except (OSError, ValueError, RecursionError):
        return False  # reading it says what is wrong
