"""One Parquet file of a set: its columns, and how it is written so that memory stays flat.

    columns    image {bytes, path}, problem, solution, task, frame, and every further column
    metadata   {"huggingface": {"info": {"features": {"image": {"_type": "Image"}, ...}}}}

The metadata is what ``datasets.load_dataset`` and the hubs' viewers read: with it the struct of
bytes and path is shown as a picture. The images are stored as they came, neither compressed again
nor indexed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.source import DataError

if TYPE_CHECKING:
    import pyarrow as pa

TEXTS = ("problem", "solution", "task", "frame")


def schema_of(rows: Sequence[Mapping[str, Any]] | Path) -> pa.Schema:
    """The columns of a shard on disk, or of rows: image and texts first, then others by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(rows, Path):
        return pq.read_schema(rows).remove_metadata()
    others = sorted({name for row in rows for name in row} - {"image", *TEXTS})
    fields = [
        pa.field("image", pa.struct({"bytes": pa.binary(), "path": pa.string()})),
        *(pa.field(name, pa.string()) for name in TEXTS),
    ]
    for name in others:
        values = [row.get(name) for row in rows]
        try:
            fields.append(pa.field(name, pa.array(values).type))
        except pa.ArrowException as error:
            raise _several_types(name, str(error)) from None
        except UnicodeEncodeError as error:
            text = f"the column {name!r} holds text that no file can store ({error})"
            raise DataError(text) from None
    return pa.schema(fields)


def widest(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema that holds all of them: null becomes any type, int becomes float."""
    import pyarrow as pa

    try:
        wide = pa.unify_schemas(list(schemas), promote_options="permissive")
    except pa.ArrowException as error:
        fields: dict[str, set[str]] = {}
        for schema in schemas:
            for one in schema:
                fields.setdefault(one.name, set()).add(str(one.type))
        name = next((name for name, types in fields.items() if len(types) > 1), "?")
        types = " and ".join(sorted(fields.get(name, {"?"})))
        raise _several_types(name, types) from error
    head = [name for name in ("image", *TEXTS) if name in wide.names]
    return pa.schema([wide.field(name) for name in (*head, *sorted(set(wide.names) - set(head)))])


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


class ShardWriter:
    """Writes groups of rows beside ``path`` and gives the file its name when it is closed."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path, self.schema = path, schema
        self._beside = path.with_name(f".{path.name}.writing")
        flat = [one.name for one in schema if not pa.types.is_nested(one.type)]
        self._writer = pq.ParquetWriter(
            self._beside,
            schema.with_metadata(features_of(schema).arrow_schema.metadata),
            compression={name: "zstd" for name in flat},
            use_dictionary=flat,
            write_statistics=flat,
            write_page_index=True,
        )

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """One row group."""
        import pyarrow as pa

        columns = []
        for one in self.schema:
            values: list[Any] = [row.get(one.name) for row in rows]
            if one.name == "image":
                values = [{"bytes": v["bytes"], "path": _hub_path(v.get("path"))} for v in values]
            columns.append(pa.array(values, one.type))
        try:
            self.write_table(pa.table(columns, schema=self.schema))
        except pa.ArrowException as error:  # an object without any key, for instance
            raise DataError(f"{self.path.name} cannot be stored as Parquet: {error}") from error

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        self._writer.close()
        with open(self._beside, "rb") as file:
            os.fsync(file.fileno())
        self._beside.rename(self.path)


def recast(path: Path, schema: pa.Schema) -> None:
    """Give a finished shard a wider schema, group by group; nothing where it has it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if schema_of(path) == schema:
        return
    with pq.ParquetFile(path) as file:
        writer = ShardWriter(path, schema)
        for i in range(file.num_row_groups):
            group = file.read_row_group(i)
            columns = [
                group.column(one.name).cast(one.type)
                if one.name in group.column_names
                else pa.nulls(group.num_rows, one.type)
                for one in schema
            ]
            writer.write_table(pa.table(columns, schema=schema))
    writer.close()


def _hub_path(path: str | None) -> str | None:
    """The image's path as it may be published: of an absolute one the file name only."""
    return os.path.basename(path) if path and os.path.isabs(path) else path
