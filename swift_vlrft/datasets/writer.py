"""Write a ViRFT-style Parquet folder, ready for a hub; its name appears when it is complete.

    write_folder(Path("shapes"), {"train": rows})

    in    {"image": {"bytes": b"\\x89PNG...", "path": "1.png"}, "problem": "Detect all dogs.",
           "solution": "<answer>No Objects</answer>", "task": "detection", "frame": "norm1000"}
    out   shapes/data/train-00000-of-00001.parquet

Rows go to Arrow files in small groups; when the columns of all are known, ``datasets`` sorts the
rows, and they are written as shards. Until then everything lies in a hidden folder beside it.
Images are stored as they came.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from swift_vlrft.datasets.row import BadRow
from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.writing import on_disk, refuse_address, space_named

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_BYTES = 256 * 2**20
GROUP_BYTES = 16 * 2**20
GROUP_ROWS = 100
"""A group of rows ends at either: small ones let a viewer fetch a few."""
PART_ROWS = 32
"""Rows in memory with their images."""

_SPLIT = re.compile(r"\w+(?:\.\w+)*")
"""Names that the hubs and ``datasets`` take for a split."""

Item = Mapping[str, Any] | BadRow
"""A row to write, or a row to leave out and list."""
_T = TypeVar("_T")


@dataclass
class Written:
    """The folder is finished; ``counts`` and ``notes`` are what the maker of the rows says."""

    folder: Path
    rows: int = 0
    shards: int = 0
    left_out: list[BadRow] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def left_out_records(self) -> list[dict[str, str]]:
        return [{"place": str(row.place), "reason": row.problem} for row in self.left_out]


def write_folder(
    folder: Path,
    splits: Mapping[str, Iterable[Item]],
    *,
    keep_going: bool = True,
    total: int | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Written:
    """Write every split's rows to ``folder``. ``total`` is the number of rows, where it is known,
    for the progress bar.

    DataError if ``folder`` exists already, where another process is writing it, where a column
    holds values of several types, where no row is left, and, unless ``keep_going``, at the first
    row to leave out.
    """
    for split in splits:
        if not _SPLIT.fullmatch(split):
            raise DataError(f"the split {split!r} is no valid name: use letters, digits, _ and .")
    refuse_address(folder)
    if folder.is_symlink() or folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already; name another folder, or remove it first")
    written = Written(folder)
    counts = dict.fromkeys(splits, 0)

    def to_write() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for split in splits:
            for item in with_bar(splits[split], total):
                if not isinstance(item, BadRow):
                    path = item["image"].get("path")
                    if path and os.path.isabs(path):  # whose folders are nobody's business
                        item = {**item, "image": {**item["image"], "path": os.path.basename(path)}}
                    yield f"row {counts[split]} of {split}", item
                    counts[split] += 1
                elif keep_going:
                    written.left_out.append(item)
                else:
                    raise DataError(f"{item} (--keep-going leaves such rows out)")

    with space_named(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    hidden = f".{folder.name}.unfinished."
    with space_named(folder), TemporaryDirectory(prefix=hidden, dir=folder.parent) as name:
        work = Path(name)
        table = _as_table(to_write(), work)
        if not len(table):
            why = written.left_out[0] if written.left_out else "the set is empty"
            raise DataError(f"{folder}: no row to write; {why}")
        data = work / "folder" / "data"
        data.mkdir(parents=True)
        for split, count in counts.items():
            rows = table.slice(written.rows, count)
            written.shards += _write_shards(data / split, rows, shard_bytes)
            written.rows += len(rows)
        if written.left_out:
            lines = [json.dumps(record) + "\n" for record in written.left_out_records()]
            (data.parent / "left_out.jsonl").write_text("".join(lines))
        data.parent.rename(folder)
    return written


def with_bar(items: Iterable[_T], total: int | None = None) -> Iterable[_T]:
    """Return the items, with a bar on the error stream if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, "rows", total, console=console, disable=not console.is_terminal)


def _as_table(rows: Iterable[tuple[str, Mapping[str, Any]]], work: Path) -> pa.Table:
    """Rows, each with its place, as one table of memory-mapped files in ``work``."""
    import pyarrow as pa
    from pyarrow import feather

    fixed = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})}
    fixed |= dict.fromkeys(("problem", "solution", "task", "frame"), pa.string())
    types, tables = dict(fixed), list[pa.Table]()
    rows = iter(rows)
    while group := list(islice(rows, PART_ROWS)):
        columns = {}
        for name in dict.fromkeys(name for _, row in group for name in row):
            values = [row.get(name) for _, row in group]
            try:
                name.encode()
                column = columns[name] = pa.array(values, fixed.get(name))
                both = [pa.schema({name: t}) for t in (types.get(name, column.type), column.type)]
                types[name] = pa.unify_schemas(both, promote_options="permissive").field(0).type
            except (pa.ArrowException, UnicodeError, OverflowError) as error:
                raise DataError(
                    f"{group[0][0]} to {group[-1][0]}: the column {name!r} cannot be stored "
                    f"({str(error)[:300]}); give all its values one type that Parquet has, for "
                    "instance by storing them as JSON text"
                ) from None
        file = str(work / f"{len(tables)}.arrow")
        feather.write_feather(pa.table(columns), file, compression="uncompressed")
        tables.append(feather.read_table(file, memory_map=True))
    whole = pa.schema(types).empty_table()
    return pa.concat_tables([whole, *tables], promote_options="permissive")


def _write_shards(path: Path, table: pa.Table, size: int) -> int:
    """Write PATH-00000-of-N.parquet, with about ``size`` bytes of images each; return N."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Features, Image

    features = Features(Features.from_arrow_schema(table.schema) | {"image": Image()})
    image_bytes = table.column("image").nbytes
    number: int = min(-(-image_bytes // size), len(table))
    group = max(1, min(GROUP_ROWS, GROUP_BYTES * len(table) // max(1, image_bytes)))
    table = table.cast(features.arrow_schema)
    for index in range(number):
        shard = path.with_name(f"{path.name}-{index:05d}-of-{number:05d}.parquet")
        start, end = (len(table) * n // number for n in (index, index + 1))
        try:
            pq.write_table(table.slice(start, end - start), shard, row_group_size=group)
        except pa.ArrowException as error:  # an object without any key, for instance
            raise DataError(f"{path.name} cannot be stored as Parquet: {error}") from error
        on_disk(shard)
    return number
