"""A ViRFT-style Parquet folder, ready for a hub; it appears under its name when it is complete.

    write_folder(Path("shapes"), {"train": rows})

    in    {"image": {"bytes": b"\\x89PNG...", "path": "1.png"}, "problem": "Detect all dogs.",
           "solution": "<answer>No Objects</answer>", "task": "detection", "frame": "norm1000"}
    out   shapes/data/train-00000-of-00001.parquet
          shapes/README.md

Rows go to disk in small groups; when the columns of all are known, the groups become shards. Until
then everything lies in ``.shapes.unfinished``. What a killed run leaves there is removed by the
next one, which starts from the first row: the same rows give the same bytes. Images are stored as
they came; the metadata that ``datasets`` writes lets the hubs' viewers show them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from swift_vlrft.datasets.card import SplitCounts, features_of, write_card
from swift_vlrft.datasets.row import BadRow
from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.writing import on_disk, space_named

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_BYTES = 256 * 2**20
GROUP_BYTES = 16 * 2**20
GROUP_ROWS = 100
"""A row group ends at either: small ones let a viewer fetch a few rows, and bound the memory."""
MOST_OPEN = 256  # files at once
TEXTS = ("problem", "solution", "task", "frame")

_SPLIT = re.compile(r"\w+(?:\.\w+)*")
"""What the hubs and ``datasets`` take as the name of a split."""

Item = Mapping[str, Any] | BadRow
"""A row to write, or one to leave out and list."""
_T = TypeVar("_T")


@dataclass
class Written:
    """The finished folder. ``counts`` and ``notes`` are what the maker of the rows has to say."""

    folder: Path
    rows: int = 0
    shards: int = 0
    left_out: list[BadRow] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def left_out_records(self) -> list[dict[str, str]]:
        return [{"place": str(one.place), "reason": one.problem} for one in self.left_out]


def write_folder(
    folder: Path,
    splits: Mapping[str, Iterable[Item]],
    *,
    about: str = "",
    licence: str | None = None,
    keep_going: bool = True,
    total: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    sort_key: Callable[[Mapping[str, Any]], Any] | None = None,
) -> Written:
    """Write every split's rows to ``folder``. ``about``, Markdown, and ``licence`` go into the
    card; ``total`` is the number of rows, where it is known, for the progress bar. With
    ``sort_key``, rows are written in its order, those with an equal key as they come.

    DataError if ``folder`` exists already, where another process is writing it, where a column
    holds values of several types, where no row is left, and, unless ``keep_going``, at the first
    row to leave out.
    """
    for split in splits:
        if not _SPLIT.fullmatch(split):
            raise DataError(f"the split {split!r} is no name: letters, digits, _ and . make one")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already; name another folder, or remove it first")
    written = Written(folder)

    def kept(items: Iterable[Item], counts: SplitCounts) -> Iterator[Mapping[str, Any]]:
        for item in items:
            advance()
            if not isinstance(item, BadRow):
                counts.add(item)
                yield item
            elif keep_going:
                written.left_out.append(item)
            else:
                raise DataError(f"{item} (--keep-going leaves such rows out)")

    with _only_process(folder) as staging, row_bar(total) as advance:
        counts = {split: SplitCounts() for split in splits}
        groups: dict[str, list[tuple[Path, int]]] = {split: [] for split in splits}
        schema = None
        keys: dict[str, list[Any]] = {split: [] for split in splits}
        for split, items in splits.items():
            rows = kept(items, counts[split])
            for number, group in enumerate(_parts(rows, _image_bytes, GROUP_BYTES, GROUP_ROWS)):
                path = staging / f"{split}-{number}.arrow"
                schema = _write_group(group, path, schema)
                groups[split].append((path, sum(map(_image_bytes, group))))
                if sort_key is not None:
                    keys[split] += [(sort_key(row), _image_bytes(row)) for row in group]
        if schema is None:
            why = written.left_out[0] if written.left_out else "the set is empty"
            raise DataError(f"{folder}: no row to write; {why}")
        data = staging / "folder" / "data"
        data.mkdir(parents=True)
        for split, made in groups.items():
            if sort_key is not None:
                made = _sorted_groups([path for path, _ in made], keys[split], schema)
            shards = list(_parts(made, lambda group: group[1], shard_bytes, sys.maxsize))
            for number, shard in enumerate(shards):
                name = f"{split}-{number:05d}-of-{len(shards):05d}.parquet"
                _write_shard(data / name, [path for path, _ in shard], schema)
                on_disk(data / name)
            written.shards += len(shards)
        if written.left_out:
            lines = [json.dumps(one) + "\n" for one in written.left_out_records()]
            (data.parent / "left_out.jsonl").write_text("".join(lines))
        filled = {split: one for split, one in counts.items() if one.rows}
        write_card(data.parent / "README.md", folder.name, filled, schema, about, licence)
        data.parent.rename(folder)
    written.rows = sum(one.rows for one in counts.values())
    return written


def check_storable(rows: Iterable[dict[str, Any]]) -> None:
    """DataError where ``write_folder`` would raise one for the columns' types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = None
    for group in _parts(rows, lambda row: 0, 1, GROUP_ROWS):
        found = table_of([row | {"image": {"bytes": b"", "path": None}} for row in group]).schema
        schema = found if schema is None else _widest(schema, found)
    try:
        if schema is not None:
            pq.write_table(schema.empty_table(), pa.BufferOutputStream())
    except pa.ArrowException as error:
        raise _not_parquet("the set", error) from error


@contextmanager
def row_bar(total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar on the error stream, if that is a terminal: the function to call after each row."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = ("rows", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=total)
        yield lambda: bar.advance(task)


@contextmanager
def _only_process(folder: Path) -> Iterator[Path]:
    """An empty folder beside ``folder`` for what is under way, removed at the end."""
    staging = folder.parent / f".{folder.name}.unfinished"
    with space_named(folder):
        staging.mkdir(parents=True, exist_ok=True)
    with open(staging / "lock", "w") as lock, space_named(folder):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"{folder} is being written by another process; wait for it, or end it"
            ) from None
        try:
            for left in staging.glob("*.arrow"):
                left.unlink()
            shutil.rmtree(staging / "folder", ignore_errors=True)
            yield staging
        finally:
            shutil.rmtree(staging)


def _parts(
    values: Iterable[_T], size: Callable[[_T], int], limit: int, most: int
) -> Iterator[list[_T]]:
    """The values in lists that end where their sizes reach ``limit``, or at ``most`` values."""
    part: list[_T] = []
    total = 0
    for value in values:
        part.append(value)
        total += size(value)
        if total >= limit or len(part) == most:
            yield part
            part, total = [], 0
    if part:
        yield part


def _image_bytes(row: Mapping[str, Any]) -> int:
    return len(row["image"]["bytes"])


def _write_group(
    rows: Sequence[Mapping[str, Any]], path: Path, schema: pa.Schema | None
) -> pa.Schema:
    """Write it as it is; the schema that holds it, too."""
    from pyarrow import feather

    table = table_of(rows)
    feather.write_feather(table, path, compression="uncompressed")
    return table.schema if schema is None else _widest(schema, table.schema)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows as a table; of an absolute path of an image, the file name only is published."""
    import pyarrow as pa

    types = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})}
    types |= dict.fromkeys(TEXTS, pa.string())
    columns = {}
    for name in types | dict.fromkeys(name for row in rows for name in row):
        if name.encode(errors="replace").decode() != name:
            raise DataError(f"the column {name!r} has a name that no file can store; rename it")
        values: list[Any] = [row.get(name) for row in rows]
        if name == "image":
            paths = [value.get("path") for value in values]
            paths = [os.path.basename(p) if p and os.path.isabs(p) else p for p in paths]
            values = [v | {"path": p} for v, p in zip(values, paths, strict=True)]
        try:
            columns[name] = pa.array(values, types.get(name))
        except pa.ArrowException as error:
            raise _several_types(name, str(error)[:300]) from None
        except UnicodeEncodeError as error:
            text = f"the column {name!r} holds text that no file can store ({error})"
            raise DataError(text) from None
        except OverflowError:
            text = f"the column {name!r} holds a whole number of over 64 bits; store it as text"
            raise DataError(text) from None
    return pa.table(columns)


def _widest(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """The schema that holds both: null becomes any type, int becomes float. Image and texts come
    first, then others by name.
    """
    import pyarrow as pa

    fields = []
    for name in ["image", *TEXTS, *sorted({*first.names, *second.names} - {"image", *TEXTS})]:
        found = [one.field(name) for one in (first, second) if name in one.names]
        try:
            each = [pa.schema([one]) for one in found]
            fields.append(pa.unify_schemas(each, promote_options="permissive").field(0))
        except pa.ArrowException as error:
            raise _several_types(name, f"{found[0].type} and {found[1].type}") from error
    return pa.schema(fields)


def _several_types(name: str, found: str) -> DataError:
    return DataError(
        f"the column {name!r} holds values of several types ({found}); give it one type, "
        "for instance by storing its values as JSON text"
    )


def _sorted_groups(
    groups: Sequence[Path], rows: Sequence[tuple[Any, int]], schema: pa.Schema
) -> list[tuple[Path, int]]:
    """The rows of Arrow files in the order of their keys, as new files with their image bytes.
    ``rows``: key and image bytes of each. Files are memory-mapped: no more than one group is read.
    """
    import pyarrow as pa
    from pyarrow import feather

    @lru_cache(maxsize=MOST_OPEN)
    def opened(path: Path) -> pa.Table:
        return feather.read_table(path, memory_map=True)

    places = [(path, row) for path in groups for row in range(opened(path).num_rows)]
    order = sorted(range(len(rows)), key=lambda number: rows[number][0])
    made = []
    for number, part in enumerate(_parts(order, lambda n: rows[n][1], GROUP_BYTES, GROUP_ROWS)):
        slices = [opened(path).slice(row, 1) for path, row in (places[n] for n in part)]
        tables = [schema.empty_table(), *slices]
        table = pa.concat_tables(tables, promote_options="permissive").cast(schema)
        path = groups[0].with_name(f"sorted-{groups[0].stem}-{number}.arrow")
        feather.write_feather(table.combine_chunks(), path, compression="uncompressed")
        made.append((path, sum(rows[n][1] for n in part)))
    opened.cache_clear()
    for path in groups:
        path.unlink()
    return made


def _write_shard(path: Path, groups: Iterable[Path], schema: pa.Schema) -> None:
    """One Parquet file of Arrow files, each a row group; they are removed on the way."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import feather

    flat = [one.name for one in schema if not pa.types.is_nested(one.type)]
    try:
        with pq.ParquetWriter(
            path,
            schema.with_metadata(features_of(schema).arrow_schema.metadata),
            compression={name: "zstd" for name in flat},
            use_dictionary=flat,
            write_statistics=flat,
            write_page_index=True,
        ) as writer:
            for group in groups:
                parts = [schema.empty_table(), feather.read_table(group)]
                table = pa.concat_tables(parts, promote_options="permissive").cast(schema)
                writer.write_table(table, row_group_size=table.num_rows)
                group.unlink()
    except pa.ArrowException as error:  # an object without any key, for instance
        raise _not_parquet(path.name, error) from error


def _not_parquet(what: str, error: Exception) -> DataError:
    return DataError(f"{what} cannot be stored as Parquet: {error}")
