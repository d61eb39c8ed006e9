"""A ``--dataset`` names a path or an id of a hub.

    [hf::|ms::]PATH[:SUBSET/SUBSET][#COUNT]     as ms-swift reads it (dataset/dataset_syntax.py)

What exists as a path is a path, whatever marks are in its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.datasets.source import DataError


@dataclass(frozen=True)
class DatasetName:
    """A ``--dataset`` asks for a path or a hub's id, some of its subsets (none: the usual subsets),
    ``count`` of its rows (None: all); ``hub`` is hf or ms, where it is named.
    """

    name: str
    subsets: tuple[str, ...] = ()
    count: int | None = None
    hub: str | None = None

    @property
    def path(self) -> Path:
        return Path(self.name)


def is_a_path(name: str) -> bool:
    """Tell whether it is no id of a hub: those have one slash at most and no file ending."""
    of_rows = Path(name).suffix in (".parquet", ".json", ".jsonl", ".csv")
    return of_rows or name.startswith(("/", "./", "../", "~")) or name.count("/") > 1


def parse(text: str, exists: Callable[[str], bool] = os.path.exists) -> DatasetName:
    """Parse a ``--dataset``. DataError for a count that is no number of rows, an empty name and an
    address. ``exists`` says what is a path.
    """
    if "://" in text and not exists(text):  # the rest of it may hold a password
        protocol = text.partition("://")[0]
        raise DataError(f"{protocol}://...: a set is read from disk or a hub; copy it to disk")
    whole, hub, count = text, None, None
    if not exists(text) and "::" in text:
        hub, text = text.split("::", 1)
    if not exists(text) and "#" in text:
        text, number = text.rsplit("#", 1)
        try:
            count = int(number)
        except ValueError:
            count = 0
        if count < 1:
            raise DataError(
                f"--dataset {whole}: {number!r} is no number of rows; give 1 or more, at the end: "
                f"{text}#1000, SET:TASK#1000"
            )
    name, colon, subsets = (text, "", "") if exists(text) else text.partition(":")
    if not name.strip():
        raise DataError(f"--dataset {whole!r} names no data set")
    names = tuple(subset.strip() for subset in subsets.split("/")) if colon else ()
    hub = hub.lower() if hub and hub.lower() in ("hf", "ms") else None
    return DatasetName(name.strip(), names, count, hub)
