"""``datasets`` reads files that state their columns.

Parquet   train-00000-of-00002.parquet
Arrow     data-00000-of-00001.arrow, as ``save_to_disk`` writes it

JSON is not read by ``datasets``, which makes dates of texts like "2019-01-01" and forgets where a
row stood: json_files.py.
"""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.row import RowLocation
from swift_vlrft.datasets.source import FileError
from swift_vlrft.datasets.storage import (
    BATCH_ROWS,
    Records,
    StoredSet,
    read_files,
)
from swift_vlrft.files.writing import FULL

if TYPE_CHECKING:
    from datasets import Features

for _kind in ("parquet", "arrow"):  # what they log of a broken file is said by ``damage_named``
    logging.getLogger(f"datasets.packaged_modules.{_kind}.{_kind}").setLevel(logging.CRITICAL)


@dataclass
class ColumnFiles(StoredSet):
    """A set in Parquet or Arrow."""

    counts: dict[Path, int] = field(default_factory=dict)
    """Rows of Parquet files, as their footers say."""

    def add(self, file: Path) -> None:
        features = self._features_of(file)
        self.features = self._join(file, features) if self.features else features
        self.names = list(self.features)
        self.labels = labels_of(self.features.to_dict())
        if self.counts.get(file) != 0:  # else nothing can be read from it
            self.files.append(file)

    def _features_of(self, file: Path) -> Features:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from datasets import Features

        source(self.kind, file)  # which refuses a path that datasets cannot read
        with damage_named(file), file.open("rb") as opened:
            if self.kind == "Arrow":
                return Features.from_arrow_schema(pa.ipc.open_stream(opened).schema)
            footer = pq.read_metadata(opened)
            self.counts[file] = footer.num_rows
            return Features.from_arrow_schema(footer.schema.to_arrow_schema())

    def _join(self, file: Path, features: Features) -> Features:
        """The features of the files so far and of this one: a column of nulls takes its type from
        the others.
        """
        import pyarrow as pa
        from datasets import Features

        assert self.features is not None
        first = self.files[0].name if self.files else "a file before it"
        if set(features) != set(self.features):
            raise FileError(
                file,
                f"it has the columns {', '.join(features)}, but {first} has "
                f"{', '.join(self.features)}; all files of a set need the same columns",
            )
        labels, before = labels_of(features.to_dict()), labels_of(self.features.to_dict())
        if labels != before:
            raise FileError(
                file,
                f"it names other classes than {first}: {_briefly(labels)}, but "
                f"{_briefly(before)}; save both with the same ClassLabel",
            )
        both = self.features.arrow_schema, features.arrow_schema
        try:
            joined = pa.unify_schemas(both, promote_options="permissive")
        except pa.ArrowException as error:
            raise FileError(
                file, f"it has other types than {first} ({error}); all files need the same types"
            ) from error
        kinds = [schema.field("solution").type for schema in both if "solution" in features]
        if len({pa.types.is_integer(kind) for kind in kinds if not pa.types.is_null(kind)}) > 1:
            raise FileError(
                file,
                f"the column 'solution' holds {kinds[1]}, but {kinds[0]} in {first}, and 4 would "
                "become 4.0; all files of a set need the same type",
            )
        return Features.from_arrow_schema(joined)

    def _read(self, names: list[str]) -> Records:
        return read_files(self.files, lambda file: self._rows(file, names))

    def _rows(self, file: Path, names: list[str]) -> Records:
        from datasets import Features, load_dataset

        assert self.features is not None
        options: dict[str, Any] = {}
        if self.kind == "Parquet":
            features = Features({name: self.features[name] for name in names})
            options = {"columns": names, "features": features, **parquet_options()}
        row = 0
        # As tables, images stay bytes, and nothing is decoded.
        with damage_named(
            file, lambda: f" after row {row - 1}" if row else " before its first row"
        ):
            rows = load_dataset(streaming=True, **source(self.kind, file), **options)
            for table in rows.select_columns(names).with_format("arrow").iter(BATCH_ROWS):
                for record in table.to_pylist():
                    yield RowLocation(file, row), record
                    row += 1
            if row != (count := self.counts.get(file, row)):
                raise ValueError(f"of {count} rows")


def source(kind: str, file: Path) -> dict[str, Any]:
    """Return the arguments that name one file to ``load_dataset``.

    It takes names for patterns, and "::" for a file in an archive.
    """
    if "::" in str(file):
        raise FileError(file, "datasets cannot read a path with '::' in it; rename it")
    return {"path": kind.lower(), "data_files": glob.escape(str(file)), "split": "train"}


def parquet_options() -> dict[str, Any]:
    """Read a few rows at a time: a whole group of rows may be gigabytes of photographs."""
    from pyarrow.dataset import ParquetFragmentScanOptions

    options = ParquetFragmentScanOptions(
        pre_buffer=False, use_buffered_stream=True, buffer_size=1 << 20
    )
    return {"batch_size": BATCH_ROWS, "fragment_scan_options": options}


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


def labels_of(features: Any) -> dict[str, list[str]]:
    """Return, by column, the names of the first ClassLabel anywhere in its features."""

    def names(inside: Any) -> list[str]:
        if isinstance(inside, dict):
            if inside.get("_type") == "ClassLabel" and inside.get("names"):
                return [str(name) for name in inside["names"]]
            inside = list(inside.values())
        parts = inside if isinstance(inside, list) else []
        return next((classes for part in parts if (classes := names(part))), [])

    items = features.items() if isinstance(features, dict) else ()
    return {column: classes for column, inside in items if (classes := names(inside))}


def _briefly(labels: dict[str, list[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(n)[:100]}" for name, n in labels.items()) or "none"
