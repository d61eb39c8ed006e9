"""Read JSON and JSON Lines as found in practice: with a byte order mark, CRLF, blank lines, and
half a line at the end if the run was killed or is still writing.

    for number, entry in json_objects(Path("predictions.jsonl"), notes):
        ...     3, {"completion": "<think>..", "solution": ".."}
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.files.text import PlacedError


class LineError(PlacedError):
    """A file, or a line of it, that cannot be read as JSON."""


@dataclass(frozen=True)
class Broken:
    """A line that is not JSON, and why. ``begun``: it starts like an object."""

    problem: str
    begun: bool


def read_json(path: Path, object_hook: Callable[[Any], Any] | None = None) -> Any:
    """Return the value of a JSON file, each object in it passed through ``object_hook``. LineError
    if it is not JSON.
    """
    _refuse_pipe(path)
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogatepass")
        return json.loads(text, object_hook=object_hook)
    except UnicodeError as error:
        raise LineError(path, f"not UTF-8 ({error}); save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise LineError(path, f"not JSON ({error}); copy or download it again") from None


def begins_with_list(path: Path) -> bool:
    """Tell whether the first character of a file opens a list."""
    _refuse_pipe(path)
    with path.open("rb") as file:
        return file.read(4096).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield every line that is not blank, numbered from 1, as its value or as ``Broken``."""
    _refuse_pipe(path)
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            # Concatenated files have byte order marks inside, at the start of a line.
            text = raw.removeprefix(codecs.BOM_UTF8).strip()
            if text:
                yield number, _value(text)


def _value(text: bytes) -> Any:
    begun = text.startswith(b"{")
    try:
        return json.loads(text.decode("utf-8", "surrogatepass"))
    except UnicodeError as error:
        return Broken(f"not UTF-8 ({error}); save the file as UTF-8", begun)
    except (ValueError, RecursionError):
        return Broken(
            "not JSON; one JSON object per line is needed (a run that was killed leaves half a "
            "line: remove it)",
            begun,
        )


def json_objects(path: Path, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield every line's object; half a line at the end is left out and reported in ``notes``.
    LineError for any other line that is not an object.
    """
    any_object = False
    lines = json_lines(path)
    for number, value in lines:
        place = f"{path}, line {number}"
        if isinstance(value, Broken):
            if any_object and value.begun and next(lines, None) is None:
                notes.append(
                    f"{place}: half a line at the end (the run was killed, or is "
                    "still writing), left out"
                )
                return
            raise LineError(place, value.problem)
        if not isinstance(value, dict):
            raise LineError(place, f"{str(value)[:40]!r} is no JSON object; one per line is needed")
        any_object = True
        yield number, value


def finite(value: Any) -> float | None:
    """Return a number or numeric string as a float; None for all else, also NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _refuse_pipe(path: Path) -> None:
    if path.is_fifo():
        raise LineError(path, "a pipe, and it is read more than once: save it to a file")
