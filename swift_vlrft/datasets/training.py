"""Make the ``datasets.Dataset`` that ms-swift's GRPO trainer reads of a stored set.

    in    image {"bytes", "path"}, problem "What is it?", solution "<answer>rose</answer>"
    out   messages [{"role": "user", "content": "<image>What is it?"}], images [{"bytes", "path"}],
          solution "<answer>rose</answer>", task "classification", frame None

Stored images are not copied where nothing has to change: rows point at the column where it lies
(memory-mapped Arrow). Only a ``data:`` URL, and an image that ms-swift would show wrongly (turned
by its EXIF tag, 16 bits a pixel), are written into the cache.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.cache import image_sizes_of_files, mapped, stored_file, upright_file
from swift_vlrft.datasets.check import Report, validate_rows
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.image import ImageSize, try_image_size
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.schemas import schema_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import StoredSet, Table, left_out_notes
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


def to_dataset(
    path: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None, **options: Any
) -> Dataset:
    """Return a set as ms-swift trains on it: messages, images, solution, task, frame and the rest.

    ``options`` are ``read_rows``'s. Boxes are in norm1000. DataError names the first rows that
    cannot be trained on. Images that have to be written again are kept in ``cache``.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache if cache is not None else Path(base, "swift_vlrft", "images"))
    return training_set(open_set(path, **options), LoadOptions(cache=folder, strict=True))[0]


def with_prompt(row: Row) -> list[dict[str, str]]:
    """Return the system's turn, if the row has one, and the user's. The image comes first, as in
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
    stored = table or stored
    loaded = _loaded(stored, table, options)
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
            image = item.image or (table.image_at(item.number) if table else {})
            item.image = _file(upright_file(image, row.place, options.cache))
    return _dataset(trained, table, stored, options), report


def _table(stored: StoredSet, options: LoadOptions) -> Table | None:
    """The set as a table in whose rows its images lie; None if it stores none in such a column."""
    schema = schema_of(stored.columns)
    if schema is None or not stored.has_inline_images(schema.image):
        return None
    assert isinstance(stored, Table | ColumnFiles)
    return mapped(stored, schema.image, options.cache, options.num_proc)


def _loaded(stored: StoredSet, table: Table | None, options: LoadOptions) -> list[_Loaded]:
    """Rows with the sizes of their images, which stay in the table or are files."""
    loaded = []
    for row in rows_of(stored, without_images=table is not None):
        item = _Loaded(row)
        loaded.append(item)
        if not isinstance(row, Row):
            continue
        item.image, name = row.image, row.image["path"]
        if table is not None:
            name = _find_in(table, item, row) or name
        if item.image is not None and (content := item.image["bytes"]) is not None:
            if isinstance(size := try_image_size(item.image), str):
                item.size = size
            else:  # of a data: URL, or made by the set's schema; looked at again as a file
                item.image = _file(stored_file(bytes(content), options.cache))
        item.row = replace(row, image=_file(name))  # the bytes are let go
    files = [(item, str(item.image["path"] or "")) for item in loaded if item.image is not None]
    files = [(item, path) for item, path in files if item.size is None]
    sizes = image_sizes_of_files((path for _, path in files), options.cache, options.num_proc)
    for item, path in files:
        item.size = sizes[path]
    return loaded


def _find_in(table: Table, item: _Loaded, row: Row) -> str | None:
    """Let ``item`` point at the row's image in the table, if it lies there; return its name."""
    number = table.number_of(row.place)
    try:
        if any(row.image.values()) and row.image != table.image_at(number):
            return None  # the schema gave the row another image
        item.number, item.size = number, table.image_sizes[number]
        item.image = table.image_at(number) if item.size is None else None  # None: a path
    except ValueError as error:
        item.image, item.size = None, str(error)
    return table.name_at(number) if isinstance(item.size, ImageSize) else None


def _file(path: str | None) -> dict[str, Any]:
    return {"bytes": None, "path": path}


# ---- images that lie ready in Arrow ----------------------------------------------------------


def _image_column(trained: list[tuple[_Loaded, Row]], table: Table | None) -> pa.ChunkedArray:
    """The column of images: some lie in the table, in runs, the others are files."""
    import pyarrow as pa

    kind = pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    lying = None if table is None else _as_lists(table.images)
    chunks: list[pa.Array] = []
    for stay, part in groupby((item for item, _ in trained), key=lambda item: item.image is None):
        if not stay:
            chunks.append(pa.array([[item.image] for item in part], kind))
        elif lying is not None:
            chunks += _at(lying, [item.number for item in part]).chunks
    return pa.chunked_array(chunks, kind)


def _at(column: pa.ChunkedArray, numbers: Sequence[int]) -> pa.ChunkedArray:
    """The values of these rows, in slices: nothing is copied. A row may come several times."""
    import pyarrow as pa

    ends = list(accumulate(map(len, column.chunks)))
    chunks: list[pa.Array] = []
    for _, run in groupby(
        enumerate(numbers), key=lambda pair: (bisect_right(ends, pair[1]), pair[1] - pair[0])
    ):
        part = [number for _, number in run]
        index = bisect_right(ends, part[0])
        chunk = column.chunk(index)
        chunks.append(chunk.slice(part[0] - ends[index] + len(chunk), len(part)))
    return pa.chunked_array(chunks, column.type)


def _as_lists(images: pa.ChunkedArray) -> pa.ChunkedArray:
    """Images with every value in a list of its own; only offsets are new, and the paths: ms-swift
    would read the file that a path leads to from where it runs, rather than the bytes.
    """
    import pyarrow as pa
    from datasets import Image

    chunks = []
    for chunk in images.chunks:
        listed = pa.types.is_list(chunk.type)
        values = Image().cast_storage(chunk.values if listed else chunk)
        paths = [None if p and os.path.exists(p) else p for p in values.field("path").to_pylist()]
        parts = [values.field("bytes"), pa.array(paths, pa.string())]
        values = pa.StructArray.from_arrays(parts, names=["bytes", "path"])
        offsets = chunk.offsets if listed else pa.array(range(len(chunk) + 1), pa.int32())
        chunks.append(pa.ListArray.from_arrays(offsets, values))
    return pa.chunked_array(chunks)


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
    """Further columns of rows. A column of several types, or of whole numbers of over 64 bits,
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
    from datasets import Dataset, DatasetInfo, Features, Json, List, Value
    from datasets.features.features import generate_from_arrow_type

    rows = [row for _, row in trained]
    columns = _columns(rows, options)
    names = dict.fromkeys(name for row in rows for name in row.columns)
    ours = {*columns, *MADE, "image", "problem"}
    further = _further(rows, [name for name in names if name not in ours])
    features = Features(
        {"messages": List(Json())}
        | {name: Value("string") for name in ("solution", "task", "frame")}
        | {name: Value("int64") for name in ("width", "height") if name in columns}
        | {name: generate_from_arrow_type(column.type) for name, column in further.items()}
    )
    light = Dataset.from_dict({**columns, **further}, features=features)
    table_of_all = light.data.table.append_column("images", _image_column(trained, table))
    features["images"] = List({"bytes": Value("binary"), "path": Value("string")})
    # A fingerprint of our own: the default one would read every image.
    text = str((stored.path, options.box_format, columns["messages"], columns["solution"]))
    return Dataset(
        table_of_all,
        info=DatasetInfo(features=features),
        fingerprint=sha256(text.encode()).hexdigest()[:16],
    )
