"""Files that state their columns.

Parquet   train-00000-of-00002.parquet
Arrow     data-00000-of-00001.arrow, as ``save_to_disk`` writes it
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Records, StoredSet, lies_ready, read_files
from swift_vlrft.datasets.syntax import Address

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 64
"""Rows per batch: pyarrow's default of 65,536 would be many gigabytes of photographs."""


def _located(file: Path) -> tuple[str, Any]:
    """The name and the file system that Arrow takes for a file."""
    if not isinstance(file, Address):
        return str(file), None
    import fsspec

    system, name = fsspec.url_to_fs(str(file))
    return name, system


def _parquet_schema(file: Path) -> pa.Schema:
    import pyarrow.parquet as pq

    name, system = _located(file)
    return pq.read_metadata(name, filesystem=system).schema.to_arrow_schema()


def _parquet_batches(file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    name, system = _located(file)
    with pq.ParquetFile(name, filesystem=system) as source:
        yield from source.iter_batches(batch_size=BATCH_ROWS, columns=names)


def _arrow_schema(file: Path) -> pa.Schema:
    import pyarrow as pa

    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_stream(source).schema


def _arrow_batches(file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with file.open("rb") as opened, pa.memory_map(str(file)) as source:

        def look() -> None:  # to read what is no longer there would kill the process
            if (size := os.fstat(opened.fileno()).st_size) < source.size():
                raise OSError(f"it had {source.size()} bytes, and has {size} now")

        for batch in pa.ipc.open_stream(source):
            for start in range(0, len(batch), BATCH_ROWS):
                look()
                yield batch.slice(start, BATCH_ROWS).select(names)
            look()


READERS = {
    "Parquet": (_parquet_schema, _parquet_batches),
    "Arrow": (_arrow_schema, _arrow_batches),
}
"""What reads the schema of a file, and its batches, by the set's ``kind``."""
FOOTERS = 16
"""Footers that are read at the same time: of a store, most of the time is waiting."""


@dataclass
class ColumnFiles(StoredSet):
    """Parquet or Arrow."""

    @classmethod
    def of_files(
        cls, path: Path, files: Sequence[Path], kind: str, *, keep_going: bool = False
    ) -> Self:
        """DataError if a file is broken, or its columns or classes are others than the first
        one's; with ``keep_going`` such a file goes to ``broken``.
        """
        made = cls(path, kind=kind)
        with ThreadPoolExecutor(FOOTERS) as pool:
            schemas = list(pool.map(made._schema, files))
        for file, schema in zip(files, schemas, strict=True):
            try:
                if isinstance(schema, DataError):
                    raise schema
                labels = labels_of(_features(schema))
                if made.files:
                    made._compare(file, schema.names, labels)
            except DataError as error:
                if not keep_going:
                    raise
                made.broken.append(BadRow(RowLocation(file), str(error)))
                continue
            if not made.files:
                made.names, made.labels = schema.names, labels
            made.files.append(file)
        return made

    def _schema(self, file: Path) -> pa.Schema | DataError:
        import pyarrow as pa

        try:
            schema = READERS[self.kind][0](file)
            schema.names  # noqa: B018 - decodes them
            return schema
        except (pa.ArrowException, OSError, UnicodeError) as error:
            return DataError(
                f"{file} cannot be read as {self.kind} ({error}); copy or download it again"
            )

    def _compare(self, file: Path, names: list[str], labels: dict[str, list[str]]) -> None:
        first = self.files[0].name
        if set(names) != set(self.names):
            raise DataError(
                f"{file} has the columns {', '.join(names)}, but {first} has "
                f"{', '.join(self.names)}; all files of a set need the same columns"
            )
        if labels != self.labels:
            raise DataError(
                f"{file} names its classes otherwise than {first}: {_briefly(labels)}, but "
                f"{_briefly(self.labels)}; save both with the same ClassLabel"
            )

    def images_lie_ready(self) -> bool:
        column = self.stored_name("image")
        for file in self.files:
            schema = self._schema(file)
            if isinstance(schema, DataError):
                raise schema
            if not lies_ready(schema.field(column).type):
                return False
        return True

    def _read(self, names: list[str]) -> Records:
        return read_files(self.files, lambda file: self._rows(file, names))

    def _rows(self, file: Path, names: list[str]) -> Records:
        import pyarrow as pa

        row = 0
        try:
            for batch in READERS[self.kind][1](file, names):
                for record in batch.to_pylist():
                    yield RowLocation(file, row), record
                    row += 1
        except (pa.ArrowException, OSError, UnicodeError) as error:  # of text that is not UTF-8
            where = f"after row {row - 1}" if row else "before its first row"
            raise DataError(
                f"{file} breaks off or is damaged {where} ({error}); copy or download it again"
            ) from error


def _features(schema: pa.Schema) -> Any:
    """The features as ``datasets`` stored them beside the columns; {} where it did not."""
    text = (schema.metadata or {}).get(b"huggingface")
    try:
        return json.loads(text)["info"]["features"] if text else {}
    except (ValueError, KeyError, TypeError):
        return {}


def labels_of(features: Any) -> dict[str, list[str]]:
    """By column, the names of the first ClassLabel anywhere in its features."""

    def names(inside: Any) -> list[str]:
        if isinstance(inside, dict):
            if inside.get("_type") == "ClassLabel" and inside.get("names"):
                return [str(name) for name in inside["names"]]
            inside = list(inside.values())
        parts = inside if isinstance(inside, list) else []
        return next((found for part in parts if (found := names(part))), [])

    items = features.items() if isinstance(features, dict) else ()
    return {column: found for column, inside in items if (found := names(inside))}


def _briefly(labels: dict[str, list[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(n)[:100]}" for name, n in labels.items()) or "none"
