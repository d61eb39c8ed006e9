"""Make the ``datasets.Dataset`` that ms-swift's GRPO trainer reads of a stored set.

    in    image {"bytes", "path"}, problem "What is it?", solution "<answer>rose</answer>"
    out   messages [{"role": "user", "content": "<image>What is it?"}], images [{"bytes", "path"}],
          solution "<answer>rose</answer>", task "classification", frame None

Images are read when a row is (stored_image.py): nothing is written, whatever the set is. A row of a
video has a column ``videos`` with its path instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from swift_vlrft.datasets.check import GoodRow, Report, validate_rows
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.image import ImageSize
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import sized_rows
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import StoredSet, Table, left_out_notes
from swift_vlrft.datasets.validate import RowRules

if TYPE_CHECKING:
    from datasets import Dataset

MADE = ("messages", "images", "solution", "task", "frame", "system")


@dataclass(frozen=True)
class LoadOptions(RowRules):
    """A command asks this of a set: ``strict`` stops at a bad row; ``subset`` is what the command
    asks for by name.
    """

    subset: tuple[str, ...] = ()
    strict: bool = False
    num_proc: int = 1
    with_answers: bool = False
    """Whether ``messages`` end with the solution as the assistant's turn."""


def to_dataset(path: str | os.PathLike[str], **options: Any) -> Dataset:
    """Return a set as ms-swift trains on it: messages, images, solution, task, frame and the rest.

    ``options`` are ``read_rows``'s. Boxes are in norm1000. DataError names the first rows that
    cannot be trained on.
    """
    return training_set(open_set(path, **options), LoadOptions(strict=True))[0]


def with_prompt(row: Row) -> list[dict[str, str]]:
    """Return the system's turn, if the row has one, and the user's. The image comes first, as in
    ViRFT's own prompts, unless the prompt says where; a video comes first.
    """
    tag = "<video>" if row.image.get("video") else "<image>"
    text = row.problem if tag in row.problem else f"{tag}{row.problem}"
    turns = [("system", row.columns.get("system")), ("user", text)]
    return [{"role": role, "content": content} for role, content in turns if content]


def training_set(stored: StoredSet, options: LoadOptions) -> tuple[Dataset, Report]:
    """Return the Dataset of a set, and the report on it."""
    if options.box_format == "pixels" and options.resize is None:
        raise DataError("the subset pixels needs the model's family; give --model_type")
    report = Report(stored.path)
    checked = validate_rows(_loaded(stored, options), options, report)
    rows = [one.trained for one in checked if isinstance(one, GoodRow)]
    report.notes += left_out_notes(stored)
    report.finish(strict=options.strict, tasks=options.tasks)
    return _dataset(rows, stored, options), report


def _loaded(
    stored: StoredSet, options: LoadOptions
) -> Iterator[tuple[Row | BadRow, ImageSize | str | None]]:
    """Yield every row with the size of its image, whose bytes are let go: ``where`` says where they
    lie, as stored_image.py reads it.
    """
    for row, size in sized_rows(stored, options.num_proc, decoded=False):
        if isinstance(row, Row):
            turned = isinstance(size, ImageSize) and not size.plain
            where = _where(row, stored) | {"upright": turned, "place": str(row.place)}
            row.image.update(bytes=None, where=where)
        yield row, size


def _where(row: Row, stored: StoredSet) -> dict[str, Any]:
    if row.image["bytes"] is None or row.column is None:
        return row.image
    where: dict[str, Any] = {"column": row.column, "row": row.place.row}
    if isinstance(stored, Table):
        return where | {"path": stored.key}
    assert isinstance(stored, ColumnFiles)
    path, changed = stored.lies[row.place.file]
    return where | {"path": path, "changed": changed}


def _dataset(rows: list[Row], stored: StoredSet, options: LoadOptions) -> Dataset:
    """The Dataset of rows. A further column of several types, or of whole numbers of over 64 bits,
    becomes JSON text.
    """
    import pyarrow as pa
    from datasets import Dataset, Features, Json, List
    from datasets.features.features import generate_from_arrow_type

    from swift_vlrft.datasets.stored_image import TABLES, TYPE, StoredImage

    def turns(row: Row) -> list[bytes]:
        answer = [{"role": "assistant", "content": str(row.solution)}]
        return list(map(msgspec.json.encode, with_prompt(row) + answer * options.with_answers))

    if isinstance(stored, Table):
        TABLES[stored.key] = stored.table
    columns: dict[str, Any] = {
        "messages": pa.array([turns(row) for row in rows], pa.list_(pa.string())),
        "solution": pa.array([str(row.solution) for row in rows], pa.string()),
    }
    kinds = {"task": pa.string(), "frame": pa.string()}
    if options.box_format == "pixels":
        # The size that boxes in pixels are measured in; sets of text alone have the columns, too.
        kinds |= {"width": pa.int64(), "height": pa.int64()}
    for name, kind in kinds.items():
        columns[name] = pa.array([row.columns.get(name) for row in rows], kind)
    if rows and rows[0].image.get("video"):
        columns["videos"] = pa.array([[row.image["path"]] for row in rows])
    else:
        columns["images"] = pa.array([[row.image["where"]] for row in rows], pa.list_(TYPE))
    ours = {*columns, *MADE, "image", "problem"}
    for name in dict.fromkeys(name for row in rows for name in row.columns if name not in ours):
        values = [row.columns.get(name) for row in rows]
        try:
            column = pa.array(values)
        except (pa.ArrowException, UnicodeEncodeError, OverflowError):
            column = pa.array([None if value is None else json.dumps(value) for value in values])
        if not pa.types.is_null(column.type):
            columns[name] = column
    types = {name: generate_from_arrow_type(column.type) for name, column in columns.items()}
    types["messages"] = List(Json())
    if "images" in types:
        types["images"] = List(StoredImage())
    return Dataset.from_dict(columns, features=Features(types))
