"""A ``--dataset`` names a path, an address in a store, or an id of a hub.

    [hf::|ms::]PATH[:SUBSET/SUBSET][#COUNT]     as ms-swift reads it (dataset/dataset_syntax.py)
    s3://BUCKET/SET[:SUBSET/SUBSET][#COUNT]     which ms-swift would part at its first colon

What exists as a path is a path, whatever marks are in its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PosixPath

from swift_vlrft.datasets.source import DataError

_STORE = re.compile(r"[a-z][a-z0-9+.-]+:/{1,2}(?=[^/])")  # one slash: of what was a Path


class Address(PosixPath):
    """An address in a store, for which fsspec has a file system: ``s3://bucket/set``."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)


@dataclass(frozen=True)
class DatasetName:
    """A ``--dataset`` asks for a path, an address or a hub's id, some of its subsets (none: the
    usual subsets), ``count`` of its rows (None: all); ``hub`` is hf or ms, where it is named.
    """

    name: str
    subsets: tuple[str, ...] = ()
    count: int | None = None
    hub: str | None = None

    @property
    def path(self) -> Path:
        return path_of(self.name)

    @property
    def is_a_path(self) -> bool:
        """Tell whether it is no id of a hub: those have one slash at most and no file ending."""
        if self.in_store:
            return False
        return is_a_path(self.name) or self.path.suffix in (".parquet", ".json", ".jsonl", ".csv")

    @property
    def in_store(self) -> bool:
        return isinstance(self.path, Address)


def is_a_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~")) or name.count("/") > 1


def parse(text: str, exists: Callable[[str], bool] = os.path.exists) -> DatasetName:
    """Parse a ``--dataset``; DataError for a count that is no number of rows, an empty name, and an
    address with a password in it. ``exists`` says what is a path.
    """
    path_of(text)  # which refuses an address with a password, before an error repeats it
    whole, hub, count = text, None, None
    if not exists(text) and "::" in text:
        hub, text = text.split("::", 1)
    if not exists(text) and "#" in text:
        text, number = text.rsplit("#", 1)
        count = _count(number, whole, text)
    if exists(text):
        name, colon, subsets = text, "", ""
    else:
        start = match.end() if (match := _STORE.match(text)) else 0
        name, colon, subsets = text[start:].partition(":")
        name = str(path_of(text[:start] + name)) if start else name
    if not name.strip():
        raise DataError(f"--dataset {whole!r} names no data set")
    names = tuple(subset.strip() for subset in subsets.split("/")) if colon else ()
    hub = hub.lower() if hub and hub.lower() in ("hf", "ms") else None
    return DatasetName(name.strip(), names, count, hub)


def _count(number: str, whole: str, name: str) -> int:
    try:
        if (count := int(number)) > 0:
            return count
    except ValueError:
        pass
    raise DataError(
        f"--dataset {whole}: {number!r} is no number of rows; give 1 or more, at the end: "
        f"{name}#1000, SET:TASK#1000"
    )


def path_of(name: str | os.PathLike[str]) -> Path:
    """Return a path, or an address in a store; DataError for an address with a password in it."""
    text = os.fspath(name)
    if isinstance(name, Address):
        return name
    if not (match := _STORE.match(text)) or os.path.exists(text):
        return Path(name)
    rest = text[match.end() :]
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise DataError(
            f"{match[0].rstrip('/')}//...: an address is logged, so it takes neither credentials "
            "nor options; use the environment or the store's own configuration"
        )
    return Address(text)
