"""Files that state their columns.

Parquet   train-00000-of-00002.parquet
Arrow     data-00000-of-00001.arrow, as ``save_to_disk`` writes it
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from swift_vlrft.datasets.remote import opened
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Records, StoredSet, lies_ready, read_files

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 64
"""Rows per batch: pyarrow's default of 65,536 would be many gigabytes of photographs."""


Footer = tuple["pa.Schema", list[tuple[int, int]]]
"""The schema of a file, and of its row groups how many rows and bytes; Arrow has none."""


def _parquet_footer(file: Path) -> Footer:
    import pyarrow.parquet as pq

    footer = pq.read_metadata(opened(file))
    groups = (footer.row_group(i) for i in range(footer.num_row_groups))
    return footer.schema.to_arrow_schema(), [(g.num_rows, g.total_byte_size) for g in groups]


def _parquet_batches(file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(opened(file)) as source:
        yield from source.iter_batches(batch_size=BATCH_ROWS, columns=names)


def _arrow_footer(file: Path) -> Footer:
    import pyarrow as pa

    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_stream(source).schema, []


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
    "Parquet": (_parquet_footer, _parquet_batches),
    "Arrow": (_arrow_footer, _arrow_batches),
}
"""What reads the footer of a file, and its batches, by the set's ``kind``."""
FOOTERS = 16
"""Footers that are read at the same time: of a store, most of the time is waiting."""


@dataclass
class ColumnFiles(StoredSet):
    """Parquet or Arrow; ``groups``: how many rows and bytes the row groups of each file have."""

    groups: list[list[tuple[int, int]]] = field(default_factory=list)

    @classmethod
    def of_files(
        cls, path: Path, files: Sequence[Path], kind: str, *, keep_going: bool = False
    ) -> Self:
        """DataError if a file is broken, or its columns or classes are others than the first
        one's; with ``keep_going`` such a file goes to ``broken``.
        """
        made = cls(path, kind=kind)
        with ThreadPoolExecutor(FOOTERS) as pool:
            footers = list(pool.map(made._footer, files))
        for file, footer in zip(files, footers, strict=True):
            try:
                if isinstance(footer, DataError):
                    raise footer
                schema, groups = footer
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
            made.groups.append(groups)
        return made

    def _footer(self, file: Path) -> Footer | DataError:
        import pyarrow as pa

        try:
            footer = READERS[self.kind][0](file)
            footer[0].names  # noqa: B018 - decodes them
            return footer
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
            footer = self._footer(file)
            if isinstance(footer, DataError):
                raise footer
            if not lies_ready(footer[0].field(column).type):
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
