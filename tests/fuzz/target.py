"""What every fuzzed reader has in common: a case is made, checked, saved, and read again."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import LineError

PACKAGE = str(Path(__import__("swift_vlrft").__file__).parent)


class Target:
    """One reader. A case is a file, as its name and its bytes, unless a target says otherwise."""

    name = ""
    one_input = ""
    """What is counted as one input."""
    seconds = 20.0
    """CPU time that a case may take."""
    share = 1
    """Of the time, beside the other targets."""

    def make(self, rng: random.Random, folder: Path) -> Any:
        """A new case; ``folder`` is this target's own and stays the same."""
        raise NotImplementedError

    def check(self, case: Any, folder: Path) -> int:
        """How many inputs the case holds. Any exception is a failure."""
        raise NotImplementedError

    def save(self, case: Any, folder: Path) -> Path:
        """Write the case into ``folder``; ``load`` reads it."""
        folder.mkdir(parents=True, exist_ok=True)
        name, content = case
        (folder / name).write_bytes(content)
        return folder / name

    def load(self, file: Path) -> Any:
        return file.name, file.read_bytes()


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
