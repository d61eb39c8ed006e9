"""Images stay where they lie until a training row is read: nothing is written, and none is copied.

    {"path": "train-00000.parquet", "column": "image", "row": 3}     bytes in a row of Parquet
    {"path": "/set/9.png"}                                           a file

``datasets`` asks the feature of a column for its values, whatever was concatenated, shuffled or
selected, so a row that ms-swift reads holds {"bytes", "path"} as it expects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from warnings import catch_warnings

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, List, Value
from datasets.features.features import register_feature

from swift_vlrft.datasets.column_files import damage_named
from swift_vlrft.datasets.image import content, image_size, upright_bytes
from swift_vlrft.datasets.source import DataError, FileError
from swift_vlrft.datasets.storage import BATCH_ROWS, image_of

TABLES: dict[str, pa.Table] = {}
"""What ``datasets`` itself opened (memory-mapped Arrow), by the path in an image's value."""
TYPE = pa.struct(
    {
        "bytes": pa.binary(),  # of a data: URL, or made by a schema of somebody's own
        "path": pa.string(),
        "column": pa.string(),  # of the table at path, where the image lies in its row
        "row": pa.int64(),
        "changed": pa.int64(),  # when that file did, in nanoseconds
        "upright": pa.bool_(),  # ms-swift would show it otherwise than it is meant
        "place": pa.string(),  # its row's, where it may still prove to be broken
    }
)


@dataclass
class StoredImage:
    """The feature of ``datasets`` whose values are read when they are asked for."""

    dtype: ClassVar[str] = "dict"
    pa_type: ClassVar[pa.DataType] = TYPE
    _type: str = field(default="StoredImage", init=False, repr=False)

    def __call__(self) -> pa.DataType:
        return TYPE

    def decode_example(self, value: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        image = {"bytes": value["bytes"], "path": value["path"]}
        if value["row"] is not None:
            image = _in_table(*(value[k] for k in ("path", "column", "row", "changed")))
        try:
            if value["upright"]:
                image = upright_bytes(image)
            elif value["place"] is not None:
                image_size(image)
        except DataError as error:
            raise DataError(f"{value['place']}: {error}") from error
        if image["bytes"] is not None and image["path"] and os.path.exists(image["path"]):
            image["path"] = None  # ms-swift would read that file rather than the bytes
        return image

    def cast_storage(self, storage: pa.StructArray) -> pa.StructArray:
        return storage.cast(TYPE)

    def embed_storage(self, storage: pa.StructArray, *_: Any, **__: Any) -> pa.StructArray:
        """Return the pictures themselves, to be written by ``datasets``."""
        shown = map(self.decode_example, storage.to_pylist())
        return pa.array([{"bytes": content(image)} for image in shown], TYPE)


with catch_warnings(action="ignore"):  # that a feature of one's own is experimental
    register_feature(StoredImage, "StoredImage")


def aligned(rows: Any) -> Any:
    """Return the rows of a set that ms-swift read with images of our type: so both concatenate."""
    theirs = List({"bytes": Value("binary"), "path": Value("string")})
    if not isinstance(rows, Dataset) or rows.features.get("images") != theirs:
        return rows
    info = rows.info.copy()
    info.features["images"] = List(StoredImage())
    table = rows.data.table.cast(info.features.arrow_schema)
    return Dataset(table, info, fingerprint=rows._fingerprint, indices_table=rows._indices)


def _in_table(path: str, column: str, row: int, changed: int | None) -> dict[str, Any]:
    if path in TABLES:
        return image_of(TABLES[path].column(column)[row].as_py(), Path(), None)
    if changed is None:
        why = "another process opened it; Parquet (vlrft data convert) is read by any"
        raise FileError(Path(path), why)
    with damage_named(Path(path)):
        if os.stat(path).st_mtime_ns != changed:
            raise FileError(Path(path), "it has changed since the run read it; start the run again")
        with pq.ParquetFile(path, memory_map=True) as file:
            group = 0
            while row >= (count := file.metadata.row_group(group).num_rows):
                group, row = group + 1, row - count
        value = _batch(path, changed, column, group, row // BATCH_ROWS)[row % BATCH_ROWS]
        return image_of(value, Path(), None)


@lru_cache(maxsize=4)
def _batch(path: str, changed: int, column: str, group: int, number: int) -> list[Any]:
    """A few images of a group of rows, of the file as it was when it ``changed`` last; the next
    rows of the group are often asked for next.
    """
    with pq.ParquetFile(path, memory_map=True) as file:
        parts = file.iter_batches(BATCH_ROWS, row_groups=[group], columns=[column])
        images: list[Any] = next(islice(parts, number, None)).column(0).to_pylist()
        return images
