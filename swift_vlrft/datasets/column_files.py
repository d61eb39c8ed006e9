"""``datasets`` reads files that state their columns.

Parquet   train-00000-of-00002.parquet
Arrow     saved/state.json, data-00000-of-00001.arrow, as ``save_to_disk`` writes it

JSON is not read by ``datasets``, which makes dates of texts like "2019-01-01" and forgets where a
row stood: json_files.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.row import RowLocation
from swift_vlrft.datasets.source import FileError
from swift_vlrft.datasets.storage import BATCH_ROWS, Records, StoredSet, Table
from swift_vlrft.files.writing import FULL

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset


@dataclass
class ColumnFiles(StoredSet):
    """A set in Parquet: files of the same columns; nulls take their type from other files."""

    kind: str = "Parquet"
    schema: pa.Schema | None = None
    lies: dict[Path, tuple[str, int]] = field(default_factory=dict)
    """Each file's absolute path, and when it changed last before it was read, in nanoseconds."""

    def add(self, file: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from datasets import Features

        with damage_named(file):
            self.lies[file] = os.path.abspath(file), os.stat(file).st_mtime_ns
            schema = pq.read_schema(file)
            if len(set(schema.names)) < len(schema.names):
                raise ValueError(f"two of its columns have one name: {', '.join(schema.names)}")
            labels = labels_of(Features.from_arrow_schema(schema).to_dict())
        try:
            if self.schema and set(schema.names) != set(self.names):
                raise ValueError(f"its columns are {', '.join(schema.names)}")
            if self.schema and labels != self.labels:
                raise ValueError(f"its classes are {labels}, those before {self.labels}")
            self.schema = pa.unify_schemas([self.schema or schema, schema])
        except (pa.ArrowException, ValueError) as error:
            raise FileError(
                file,
                f"it has other columns, types or classes than {self.files[0].name} "
                f"({str(error)[:300]}); all files of a set need the same",
            ) from error
        self.names, self.labels = self.schema.names, labels
        self.files.append(file)

    def _read(self, names: list[str]) -> Records:
        return chain.from_iterable(self._rows(file, names) for file in self.files)

    def _rows(self, file: Path, names: list[str]) -> Records:
        import pyarrow.parquet as pq

        row = 0
        with damage_named(file, lambda: f" after row {row - 1}" if row else ""):
            opened = pq.ParquetFile(file, memory_map=True, pre_buffer=False)
            # A few rows at a time: a group of rows may be gigabytes of photographs.
            for batch in opened.iter_batches(BATCH_ROWS, columns=names):
                for record in batch.to_pylist():
                    yield RowLocation(file, row), record
                    row += 1


def saved_dataset(folder: Path) -> Table:
    """Open what ``save_to_disk`` wrote, memory-mapped."""
    from datasets import load_from_disk

    with damage_named(folder):
        return table_of(folder, load_from_disk(str(folder)))


def table_of(path: Path, rows: Dataset) -> Table:
    """Return rows that are in memory, or mapped, as a set."""
    rows = rows if rows._indices is None else rows.flatten_indices()
    labels = labels_of(rows.features.to_dict())
    return Table(path, [path], list(rows.column_names), labels, kind="Arrow", table=rows.data.table)


@contextmanager
def damage_named(file: Path, where: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Turn whatever ``datasets`` and Arrow raise for a file into a FileError."""
    import pyarrow as pa

    try:
        yield
    except (FileError, GeneratorExit, MemoryError):
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, OSError) and cause.errno in FULL:
            raise cause from error
        why = str(cause).partition("\n")[0][:300].rstrip(".") or type(cause).__name__
        damaged = isinstance(cause, OSError | pa.ArrowInvalid)
        remedy = "copy or download it again" if damaged else "drop or cast the column"
        raise FileError(file, f"cannot be read{where()} ({why}); {remedy}") from error


def labels_of(features: dict[str, Any]) -> dict[str, list[str]]:
    """Return, by column, the names of the first ClassLabel anywhere in its features."""

    def names(inside: Any) -> list[str]:
        if isinstance(inside, dict):
            if inside.get("_type") == "ClassLabel" and inside.get("names"):
                return [str(name) for name in inside["names"]]
            inside = list(inside.values())
        parts = inside if isinstance(inside, list) else []
        return next((classes for part in parts if (classes := names(part))), [])

    return {column: classes for column, inside in features.items() if (classes := names(inside))}
