"""A set is stored in some format, whatever its records mean: schemas.py says that.

    ColumnFiles    column_files.py: Parquet, Arrow
    JsonFiles      json_files.py: rows.jsonl, rows.json
    CocoFile       coco.py: instances_train2017.json
    Table          what ms-swift downloaded

opening.py finds the one that a path holds.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.image import image_path
from swift_vlrft.datasets.row import BadRow, RowLocation, safe_name
from swift_vlrft.datasets.splits import SHARD, listed

if TYPE_CHECKING:
    from swift_vlrft.geometry.readings import Reading

Record = dict[str, Any]
Records = Iterator[tuple[RowLocation, Record] | BadRow]

MAX_SHOWN = 5
BATCH_ROWS = 16
"""Rows read at once: they may hold photographs."""


@dataclass
class StoredSet(ABC):
    """A set in some storage format. ``files`` are those of the split asked for, ``names`` the
    columns as they are stored, ``labels`` the names of a ClassLabel by stored column.

    ``rename``, ``root``, ``task`` and ``box_format`` are those of ``open_set``: no image path may
    leave a ``root``.
    """

    path: Path
    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: dict[str, list[str]] = field(default_factory=dict)
    rename: dict[str, str] = field(default_factory=dict)
    root: Path | None = None
    task: str | None = None
    box_format: str | None = None
    reading: Reading | None = None
    """The reading that a command states for boxes in a column of their own."""
    other: list[Path] = field(default_factory=list)
    """Files beside them in formats that are not read."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """Places, by reason, of what correctly makes no row; filled while rows are read."""
    renamed_columns: set[str] = field(default_factory=set)
    """Columns that rewards get under another name; filled while rows are read."""
    kind: str = "JSON"

    @property
    def columns(self) -> list[str]:
        return [self.rename.get(name, name) for name in self.names]

    @cached_property
    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def image_root(self) -> Path | None:
        """Return the folder that image paths may not leave."""
        return self.root

    def add(self, file: Path) -> None:
        """Add a file; FileError if it cannot be read, or does not go with those before."""
        self.files.append(file)

    def records(self, columns: Sequence[str] | None = None) -> Records:
        """Yield every record, by default with all columns; a BadRow for one that cannot be read.
        FileError for a broken file.
        """
        ours = zip(self.names, self.columns, strict=True)
        chosen = [name for name, column in ours if columns is None or column in columns]
        for entry in self._read(chosen):
            if isinstance(entry, BadRow):
                yield entry
            else:
                yield entry[0], {self.rename.get(k, k): value for k, value in entry[1].items()}

    @abstractmethod
    def _read(self, names: list[str]) -> Records:
        """Every record with the columns that are stored as ``names``."""


def image_of(value: Any, folder: Path, root: Path | None) -> dict[str, Any]:
    """Return an image column's value, in any of its forms, as {"bytes", "path"}. ValueError says
    what is wrong with it.
    """
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"the row has {len(value)} images; rows need one image each")
        value = value[0]
    if isinstance(value, bytes):
        return {"bytes": value, "path": None}
    if isinstance(value, str):
        if value.startswith("data:"):
            return {"bytes": _of_data_url(value), "path": None}
        value = {"bytes": None, "path": value}
    if not isinstance(value, dict) or not {"bytes", "path"} & value.keys():
        raise ValueError(f"the image is {repr(value)[:80]}; bytes, or a path, is needed")
    content, path = value.get("bytes"), value.get("path")
    if content is None and path:
        path = str(image_path(str(path), folder, root))
    return {"bytes": content, "path": path}


def _of_data_url(text: str) -> bytes:
    """The bytes of ``data:image/png;base64,iVBORw0...``, which ms-swift takes for an image, too."""
    kind, comma, content = text.partition(";base64,")
    try:
        if not comma:
            raise ValueError("no ;base64, in it")
        return base64.b64decode(content, validate=True)
    except ValueError as error:
        raise ValueError(f"the image {kind[:60]}... is no base64 text ({error})") from error


# ---- what was downloaded ---------------------------------------------------------------------


@dataclass
class Table(StoredSet):
    """Rows that ``datasets`` opened: in memory, or memory-mapped."""

    table: Any = None

    @property
    def key(self) -> str:
        """The name of the table in this process."""
        return f"{self.path}, table {id(self.table)}"

    def _read(self, names: list[str]) -> Records:
        batches = self.table.select(names).to_batches(max_chunksize=BATCH_ROWS)
        records = chain.from_iterable(batch.to_pylist() for batch in batches)
        return ((RowLocation(self.path, row), record) for row, record in enumerate(records))


# ---- what is told of a set -----------------------------------------------------------------------


def left_out_notes(stored: StoredSet) -> list[str]:
    """Say which columns rewards get under another name, and what rightly makes no row."""
    notes, path = [], stored.path
    if taken := sorted(stored.renamed_columns):
        names = ", ".join(f"{name} as {safe_name(name)}" for name in taken)
        columns = f"rewards get the column{'s' * (len(taken) > 1)} {names}"
        notes.append(f"{path}: {columns}, since ms-swift uses a column of the first name itself")
    for reason, at in stored.left_out.items():
        some = "; ".join(at[:MAX_SHOWN]) + ("; ..." if len(at) > MAX_SHOWN else "")
        notes.append(f"{path}: {len(at)} times {reason} ({some})")
    return notes


def file_notes(stored: StoredSet) -> list[str]:
    """Say what a set lacks: columns that are to be renamed, files that are not read, and shards
    that are missing by the names of the others.
    """
    path, notes = stored.path, []
    if unknown := [name for name in stored.rename if name not in stored.names]:
        names = ", ".join(stored.names)
        notes.append(
            f"{path}: --columns renames {', '.join(unknown)}, but the set's columns are {names}"
        )
    if stored.other:
        others = listed(stored.other, path)
        notes.append(f"{path}: beside its {stored.kind} files, these are not read: {others}")
    files = stored.files if path.is_dir() else []
    shards = [(*m.groups(), f.suffix) for f in files if (m := SHARD.fullmatch(f.stem))]
    there = {f"{name}-{number}-of-{total}{ending}" for name, number, total, ending in shards}
    needed = {
        f"{name}-{number:05d}-of-{total}{ending}"
        for name, _, total, ending in shards
        for number in range(int(total))
    }
    if missing := sorted(needed - there):
        some = ", ".join(missing[:MAX_SHOWN]) + (" ..." if len(missing) > MAX_SHOWN else "")
        notes.append(
            f"{path}: shards are missing, by the names of its files ({len(missing)}: {some}); "
            "download them, unless you left them out on purpose"
        )
    return notes
