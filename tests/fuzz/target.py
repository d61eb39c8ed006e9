"""What every fuzzed reader asks of an error, of a printed text, and of a line of JSON."""

import json
import re
from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import LineError

PACKAGE = str(Path(__import__("swift_vlrft").__file__).parent)


def refused(error: Exception, place: str | Path = "") -> None:
    """AssertionError unless the error is one of ours, and names the place.

    Ours is what the commands print as one line: a ValueError that this package raises itself, and
    not one that leaks from a library.
    """
    assert isinstance(error, ValueError), f"{type(error).__name__}, no ValueError: {error!r}"
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = frame.tb_frame.f_code.co_filename if frame is not None else ""
    assert where.startswith(PACKAGE), f"raised in {where}: {error!r}"
    text = str(error)
    assert str(place) in text, f"does not name {place}: {text[:300]!r}"
    assert 10 <= len(text) <= 3000, f"{len(text)} characters: {text[:300]!r}"
    assert not re.search(r" at 0x[0-9a-f]{6}|Traceback", text), text[:300]


def clean(text: str) -> None:
    """AssertionError if a terminal would do anything with the text but show it."""
    odd = {c for c in text if not c.isprintable() and c != "\n"}
    assert not odd, f"{sorted(odd)!r} in {text[:300]!r}"


def values(line: str | bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return LineError
