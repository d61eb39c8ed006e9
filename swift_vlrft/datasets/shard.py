"""Rows as Parquet: their columns, and files that memory and the hubs' viewers can read in parts.

    columns    image {bytes, path}, problem, solution, task, frame, and every further column
    metadata   {"huggingface": {"info": {"features": {"image": {"_type": "Image"}, ...}}}}

The metadata is what ``datasets.load_dataset`` and the hubs' viewers read: with it the struct of
bytes and path is shown as an image. The images are stored as they came, neither compressed again
nor indexed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.row import with_place
from swift_vlrft.datasets.source import DataError

if TYPE_CHECKING:
    import pyarrow as pa

TEXTS = ("problem", "solution", "task", "frame")


@dataclass(frozen=True)
class LeftOut:
    """A row that is not written: where it stands in its source, and what is wrong with it."""

    place: str
    reason: str

    def __str__(self) -> str:
        return with_place(self.place, self.reason)


Item = Mapping[str, Any] | LeftOut


def stopping(items: Iterable[Item]) -> Iterator[Item]:
    """The items; DataError at the first that would be left out."""
    for item in items:
        if isinstance(item, LeftOut):
            raise DataError(f"{item} (--keep-going leaves such rows out)")
        yield item


@dataclass
class SplitCounts:
    """Counts of a split, for the card."""

    rows: int = 0
    image_bytes: int = 0
    tasks: Counter[str] = field(default_factory=Counter)
    box_formats: Counter[str] = field(default_factory=Counter)

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        self.image_bytes += len(row["image"]["bytes"])
        self.tasks.update(filter(None, [row.get("task")]))
        self.box_formats.update(filter(None, [row.get("frame")]))


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows as a table: image and texts first, then others by name."""
    import pyarrow as pa

    types = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})}
    types |= dict.fromkeys(TEXTS, pa.string())
    columns = {}
    for name in [*types, *sorted({name for row in rows for name in row} - types.keys())]:
        values: list[Any] = [row.get(name) for row in rows]
        if name == "image":
            values = [{"bytes": v["bytes"], "path": _public(v.get("path"))} for v in values]
        try:
            columns[name] = pa.array(values, types.get(name))
        except pa.ArrowException as error:
            raise _several_types(name, str(error)) from None
        except UnicodeEncodeError as error:
            text = f"the column {name!r} holds text that no file can store ({error})"
            raise DataError(text) from None
        except OverflowError:
            text = f"the column {name!r} holds a whole number of over 64 bits; store it as text"
            raise DataError(text) from None
    return pa.table(columns)


def _public(path: str | None) -> str | None:
    """The image's path as it may be published: of an absolute one the file name only."""
    return os.path.basename(path) if path and os.path.isabs(path) else path


def widest(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """The schema that holds both: null becomes any type, int becomes float."""
    import pyarrow as pa

    try:
        wide = pa.unify_schemas([first, second], promote_options="permissive")
    except pa.ArrowException as error:
        for one in second:
            if one.name in first.names and first.field(one.name).type != one.type:
                types = f"{first.field(one.name).type} and {one.type}"
                raise _several_types(one.name, types) from error
        raise
    head = ["image", *TEXTS]
    return pa.schema([wide.field(name) for name in [*head, *sorted(set(wide.names) - {*head})]])


def _several_types(name: str, found: str) -> DataError:
    return DataError(
        f"the column {name!r} holds values of several types ({found}); give it one type, "
        "for instance by storing its values as JSON text"
    )


def features_of(schema: pa.Schema) -> Any:
    """The schema as ``datasets`` and the hubs name it."""
    from datasets import Features, Image

    features = Features.from_arrow_schema(schema)
    features["image"] = Image()
    return features


def write_shard(path: Path, groups: Iterable[Path], schema: pa.Schema) -> None:
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
        raise DataError(f"{path.name} cannot be stored as Parquet: {error}") from error
