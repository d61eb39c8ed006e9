"""Make the ``datasets.Dataset`` that ms-swift's GRPO trainer reads of a stored set.

    in    image {"bytes", "path"}, problem "What is it?", solution "<answer>rose</answer>"
    out   messages [{"role": "user", "content": "<image>What is it?"}], images [{"bytes", "path"}],
          solution "<answer>rose</answer>", task "classification", frame None

Stored images are not copied where nothing has to change: the column is wrapped where it lies
(memory-mapped Arrow). Only an image that ms-swift would show wrongly (turned by its EXIF tag, 16
bits a pixel) is written once more, upright, into the cache.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.cache import image_sizes_of_files, mapped, stored_file, upright_file
from swift_vlrft.datasets.check import Report, validate_rows
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.image import ImageSize, try_image_size
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.row import BadRow, Row, safe_name
from swift_vlrft.datasets.schemas import schema_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import StoredSet, Table, image_of, left_out_notes
from swift_vlrft.datasets.validate import RowRules

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

MADE = ("messages", "images", "solution", "task", "frame", "system")


@dataclass(frozen=True)
class LoadOptions(RowRules):
    """A command asks this of a set: ``cache`` keeps images that cannot be handed on as they lie;
    ``strict`` stops at a bad row; ``subset`` is what the command asks for by name.
    """

    cache: Path
    subset: tuple[str, ...] = ()
    strict: bool = False
    num_proc: int = 1
    with_answers: bool = False
    """Whether ``messages`` end with the solution as the assistant's turn."""


def with_prompt(row: Row) -> list[dict[str, str]]:
    """Return the system's turn, if the row has one, and the user's; the image comes first, as in
    ViRFT's own prompts, unless the prompt says where.
    """
    text = row.problem if "<image>" in row.problem else f"<image>{row.problem}"
    turns = [("system", row.columns.get("system")), ("user", text)]
    return [{"role": role, "content": content} for role, content in turns if content]


@dataclass
class _Loaded:
    """A row with its image's size, and its image, unless it stays in the table's row ``number``."""

    row: Row | BadRow
    size: ImageSize | str | None = None
    image: dict[str, Any] | None = None
    number: int = 0


def training_set(stored: StoredSet, options: LoadOptions) -> tuple[Dataset, Report]:
    """Return the Dataset of a set, and the report on it."""
    if options.box_format == "pixels" and options.resize is None:
        raise DataError("the subset pixels needs the model's family; give --model_type")
    table = _table(stored, options)
    loaded = _of_files(stored, options) if table is None else list(_of_table(table))
    stored = table or stored
    report = Report(stored.path)
    trained: list[tuple[_Loaded, Row]] = []
    checked = validate_rows(((item.row, item.size) for item in loaded), options, report)
    for item, result in zip(loaded, checked, strict=True):
        if result.training_row is not None:
            trained.append((item, result.training_row))
    report.notes += left_out_notes(stored)
    report.finish(strict=options.strict, tasks=options.tasks)
    for item, row in trained:
        if isinstance(item.size, ImageSize) and not item.size.plain:
            image = item.image or _value(table, item.number)
            item.image = _file(upright_file(image, row.place, options.cache))
    return _dataset(trained, table, stored, options), report


def _of_files(stored: StoredSet, options: LoadOptions) -> list[_Loaded]:
    """Rows whose images are files, or become files, since several rows show the same one."""
    loaded = []
    for row in rows_of(stored):
        item = _Loaded(row)
        loaded.append(item)
        if not isinstance(row, Row):
            continue
        item.image, content = row.image, row.image["bytes"]
        if isinstance(content, bytes):
            item.image = _file(stored_file(content, options.cache))
            item.row = replace(row, image=_file(row.image["path"]))  # the bytes are let go
        elif content is not None:
            item.size = try_image_size(row.image)  # which says what is there instead
    files = {str(item.image["path"] or ""): item for item in loaded if item.image and not item.size}
    sizes = image_sizes_of_files(files, options.cache, options.num_proc)
    for item in loaded:
        if item.image and not item.size:
            item.size = sizes[str(item.image["path"] or "")]
            row = item.row
            if isinstance(item.size, str) and isinstance(row, Row) and row.image is not item.image:
                # As it is said of the row's own image, not of its copy in the cache.
                content = Path(item.image["path"]).read_bytes()
                item.size = try_image_size(row.image | {"bytes": content})
    return loaded


def _file(path: str | None) -> dict[str, Any]:
    return {"bytes": None, "path": path}


# ---- images that lie ready in Arrow ----------------------------------------------------------


def _table(stored: StoredSet, options: LoadOptions) -> Table | None:
    """The set as a table whose records are rows; None if records are several rows, or images are
    not all stored in a column that can be handed on as it lies.
    """
    schema = schema_of(stored.columns)
    if schema is None or not schema.single or not stored.has_inline_images():
        return None
    assert isinstance(stored, Table | ColumnFiles)
    table = mapped(stored, options.cache, options.num_proc)
    return None if None in table.image_sizes else table


def _of_table(table: Table) -> Iterator[_Loaded]:
    number = 0
    for row in rows_of(table, without_images=True):
        if row.place.row is None:  # a file that cannot be read
            yield _Loaded(row)
            continue
        if isinstance(row, Row) and row.annotated_size is not None:  # a problem may name the image
            row = replace(row, image=_file(_value(table, number)["path"]))
        yield _Loaded(row, table.image_sizes[number], number=number)
        number += 1


def _value(table: Table | None, number: int) -> dict[str, Any]:
    """The image in a row of the table."""
    assert table is not None
    return image_of(table.column("image")[number].as_py(), table.folder, table.image_root())


def _image_column(trained: list[tuple[_Loaded, Row]], table: Table | None) -> pa.ChunkedArray:
    """The column of images: some lie in the table, in runs, the others are files."""
    import pyarrow as pa

    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    chunks: list[pa.Array] = []
    for stay, part in groupby((item for item, _ in trained), key=lambda item: item.image is None):
        if not stay:
            chunks.append(pa.array([[item.image] for item in part], pa.list_(kind)))
        elif table is not None:
            where = _at(table.column("image"), [item.number for item in part])
            chunks += map(_as_list, where.chunks)
    return pa.chunked_array(chunks, pa.list_(kind))


def _at(column: pa.ChunkedArray, numbers: Sequence[int]) -> pa.ChunkedArray:
    """The values of these rows, in slices: nothing is copied."""
    import pyarrow as pa

    chunks: list[pa.Array] = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        part = [number for _, number in run]
        chunks += column.slice(part[0], len(part)).chunks
    return pa.chunked_array(chunks, column.type)


def _as_list(chunk: pa.Array) -> pa.ListArray:
    """Images with every value in a list of its own; only offsets are new, and the paths: ms-swift
    would read the file that a path leads to from where it runs, rather than the bytes.
    """
    import pyarrow as pa
    from datasets import Image

    images = Image().cast_storage(chunk)
    paths = [
        None if path and os.path.exists(path) else path for path in images.field("path").to_pylist()
    ]
    parts = [images.field("bytes"), pa.array(paths, pa.string())]
    values = pa.StructArray.from_arrays(parts, names=["bytes", "path"])
    return pa.ListArray.from_arrays(pa.array(range(len(chunk) + 1), pa.int32()), values)


# ---- columns ---------------------------------------------------------------------------------


def _columns(rows: Sequence[Row], options: LoadOptions) -> dict[str, list[Any]]:
    def turns(row: Row) -> list[dict[str, str]]:
        answer = [{"role": "assistant", "content": str(row.solution)}]
        return with_prompt(row) + answer * options.with_answers

    columns: dict[str, list[Any]] = {
        "messages": [turns(row) for row in rows],
        "solution": [row.solution for row in rows],
        "task": [row.columns["task"] for row in rows],
        "frame": [row.columns.get("frame") for row in rows],
    }
    if options.box_format == "pixels":
        # The size that boxes in pixels are measured in, for rewards and checks in training.
        for name in ("width", "height"):
            columns[name] = [row.columns.get(name) for row in rows]
    return columns


def _further(rows: Sequence[Row], names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Further columns of rows; a column of several types, or of whole numbers of over 64 bits,
    becomes JSON text.
    """
    import pyarrow as pa

    columns = {}
    for name in names:
        values = [row.columns.get(name) for row in rows]
        try:
            column = pa.array(values)
        except (pa.ArrowException, UnicodeEncodeError, OverflowError):
            column = pa.array([None if value is None else json.dumps(value) for value in values])
        if not pa.types.is_null(column.type):
            columns[name] = pa.chunked_array([column])
    return columns


def _dataset(
    trained: list[tuple[_Loaded, Row]], table: Table | None, stored: StoredSet, options: LoadOptions
) -> Dataset:
    from datasets import Dataset, Features, Json, List, Value
    from datasets.features.features import generate_from_arrow_type

    rows = [row for _, row in trained]
    columns = _columns(rows, options)
    ours = {*columns, *MADE, "image", "problem"}
    types: Mapping[str, Any] = {}
    if table is None:
        names = dict.fromkeys(name for row in rows for name in row.columns)
        further = _further(rows, [name for name in names if name not in ours])
    else:
        # The features that were stored with the table name dates and the like.
        known = table.features or Features.from_arrow_schema(table.table.schema)
        numbers = [item.number for item, _ in trained]
        held = {name for row in rows for name in row.columns} - ours
        pairs = zip(map(safe_name, table.columns), table.names, strict=True)
        names = {column: name for column, name in pairs if column in held}
        classes = [column for column, name in names.items() if name in table.labels]
        names = {column: name for column, name in names.items() if column not in classes}
        further = {column: _at(table.table.column(name), numbers) for column, name in names.items()}
        further |= _further(rows, classes)  # by their names, as conversion has them
        types = {column: known[name] for column, name in names.items() if name in known}
    features = Features(
        {"messages": List(Json())}
        | {name: Value("string") for name in ("solution", "task", "frame")}
        | {name: Value("int64") for name in ("width", "height") if name in columns}
        | {n: types.get(n) or generate_from_arrow_type(c.type) for n, c in further.items()}
    )
    # A fingerprint of our own: the default one would read every image.
    text = str((stored.path, options.box_format, columns["messages"], columns["solution"]))
    return Dataset.from_dict({**columns, **further}, features=features).add_column(
        "images",
        _image_column(trained, table),
        new_fingerprint=sha256(text.encode()).hexdigest()[:16],
        feature=List({"bytes": Value("binary"), "path": Value("string")}),
    )
