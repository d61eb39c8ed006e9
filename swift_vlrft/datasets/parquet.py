"""Parquet on disk: which files make up a set, and what the columns that are asked for hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.row import Place
from swift_vlrft.datasets.source import DataError

BATCH_ROWS = 64
"""pyarrow's own 65,536 would be many gigabytes of photographs."""

_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})\.parquet")


def parquet_files(path: Path, split: str = "train") -> list[Path]:
    """The Parquet files of a set: the file itself, or those below a folder.

    Where the file or folder names tell splits apart (``train-00000-of-00002.parquet``,
    ``train/0.parquet``), only those of ``split`` count. Empty where there is none. Raises
    DataError where there are splits but not this one.
    """
    if path.is_file():
        return [path] if path.suffix == ".parquet" else []
    files = _files_below(path)
    splits = {file: _split_of(file, path) for file in files}
    known = {name for name in splits.values() if name}
    if not known:
        return files
    if split not in known:
        if known == {_split_of(path / "0.parquet", path)}:
            return files  # the folder of one split, named itself
        raise DataError(
            f"{path}: no split {split!r} among its Parquet files; it has {', '.join(sorted(known))}"
        )
    return [file for file in files if splits[file] == split]


def missing_shards(files: Sequence[Path]) -> list[str]:
    """The shards that the names of the others speak of: ``train-00000-of-00003.parquet`` has two
    more beside it.
    """
    there = {file.name for file in files}
    series = dict.fromkeys(found.groups() for name in there if (found := _SHARD.fullmatch(name)))
    named = [
        f"{split}-{number:05d}-of-{total}.parquet"
        for split, total in series
        for number in range(int(total))
    ]
    return sorted(name for name in named if name not in there)


def split_names(path: Path) -> list[str]:
    """The splits that the Parquet files at ``path`` are named after; none where they are not."""
    files = [path] if path.is_file() else _files_below(path)
    found = {_split_of(file, path if path.is_dir() else file) for file in files}
    return [name for name in ("train", "validation", "test") if name in found]


def _files_below(folder: Path) -> list[Path]:
    """Hidden ones are left out: caches and what is half written. Where the folder itself lies
    (``../my_set``, ``~/.cache/my_set``) says nothing of its files.
    """
    return sorted(
        file
        for file in folder.rglob("*.parquet")
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _split_of(file: Path, root: Path) -> str | None:
    names = (
        file.name.split("-")[0].split(".")[0],
        *(p.name for p in file.parents if root in (p, *p.parents)),
    )
    for name in names:
        if name in ("train", "validation", "val", "test"):
            return "validation" if name == "val" else name
    return None


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


def light_rows(files: list[Path], columns: list[str]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every row's values in ``columns``, with its place; other columns are not read from disk.

    Columns of images are read, too, where they are asked for; a batch of rows at a time.
    """
    import pyarrow.parquet as pq

    for file in files:
        row = 0
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=columns):
                for values in batch.to_pylist():
                    yield Place(file, row), values
                    row += 1
