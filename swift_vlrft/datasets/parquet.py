"""Parquet on disk: which files make up a set, and what the columns that are asked for hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.row import RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import names_of_splits, of_split, walked

PARQUET = (".parquet",)

BATCH_ROWS = 64
"""pyarrow's own 65,536 would be many gigabytes of photographs."""

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?\.parquet")


def parquet_files(path: Path, split: str = "train") -> list[Path]:
    """The Parquet files of a set: the file itself, or those below a folder.

    Where the file or folder names tell splits apart (``train-00000-of-00002.parquet``,
    ``train/0.parquet``), only those of ``split`` count. Empty where there is none. Raises
    DataError where there are splits but not this one.
    """
    files = files_below(path, PARQUET)
    return of_split(files, path, split, "Parquet")[0] if path.is_dir() else files


def files_below(path: Path, endings: Sequence[str]) -> list[Path]:
    """The file itself, or those below a folder, that end so, in either case."""
    files = walked(path) if path.is_dir() else [path]
    return [file for file in files if file.suffix.lower() in endings]


def missing_shards(files: Sequence[Path]) -> list[str]:
    """The shards that the names of the others speak of: ``train-00000-of-00003.parquet`` has two
    more beside it.
    """
    found = {shard.groups() for file in files if (shard := _SHARD.fullmatch(file.name))}
    return sorted(
        f"{split}-{number:05d}-of-{total}.parquet"
        for split, total in {(split, total) for split, _, total in found}
        for number in range(int(total))
        if (split, f"{number:05d}", total) not in found
    )


def split_names(path: Path) -> list[str]:
    """The splits that the Parquet files at ``path`` are named after; none where they are not."""
    return names_of_splits(files_below(path, PARQUET), path)


def column_names(files: list[Path]) -> list[str]:
    """The columns of the first file. Raises DataError where a file is not Parquet or its columns
    differ.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names: list[str] = []
    for file in files:
        try:
            found = pq.read_schema(file).names
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{file} cannot be read as Parquet ({error}); copy or download it again"
            ) from error
        if names and set(found) != set(names):
            raise DataError(
                f"{file} has the columns {', '.join(found)}, "
                f"but {files[0].name} has {', '.join(names)}; "
                "all files of a set need the same columns"
            )
        names = names or found
    return names


def light_rows(
    files: list[Path], columns: list[str]
) -> Iterator[tuple[RowLocation, dict[str, Any]]]:
    """Every row's values in ``columns``, with its place; other columns are not read from disk.

    Columns of images are read, too, where they are asked for; a batch of rows at a time.
    """
    import pyarrow.parquet as pq

    for file in files:
        row = 0
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=columns):
                for values in batch.to_pylist():
                    yield RowLocation(file, row), values
                    row += 1
