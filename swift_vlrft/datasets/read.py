"""Read every row of a set, of any schema and storage format.

    for row in read_rows("data/my_set", keep_going=True):
        ...     Row(place, image, problem, solution, columns) or BadRow(place, problem)

Images are handed over unopened: bytes as they were stored, or the absolute path of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

from swift_vlrft.datasets.image import ImageSize, try_image_size
from swift_vlrft.datasets.json_files import JsonFiles
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.row import BOX_TASKS, AnnotatedSize, BadRow, Row, RowLocation, safe_name
from swift_vlrft.datasets.schema import (
    Context,
    MisreadBoxes,
    RawExample,
    RecordSchema,
    annotated_size_of,
    class_name,
    task_of,
)
from swift_vlrft.datasets.schemas import SCHEMAS, schema_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Record, StoredSet, image_of
from swift_vlrft.datasets.video_rows import video_of
from swift_vlrft.parsing.answers import gold_text, read_boxes

STATED = frozenset(("problem", "solution", "task", "frame"))
"""Columns of which a row is made, besides its image."""
FIELDS = dict.fromkeys(("image", "problem", "solution", "annotated_size"))
"""What a row keeps beside its columns."""
MAX_THREADS = 4
"""Images looked at at once, unless ``--dataset_num_proc`` asks for more."""
PART_ROWS = 32
"""Rows in memory with their images."""


def read_rows(
    path: str | os.PathLike[str], *, keep_going: bool = False, **options: Any
) -> Iterator[Row | BadRow]:
    """Yield the rows of a set in order, one at a time. ``options`` are ``open_set``'s.

    DataError for a set that cannot be used at all, and for a row that cannot be read; with
    ``keep_going`` that is a BadRow.
    """
    for row in rows_of(open_set(path, **options)):
        if isinstance(row, BadRow) and not keep_going:
            raise DataError(str(row))
        yield row


def rows_of(stored: StoredSet, *, without_images: bool = False) -> Iterator[Row | BadRow]:
    """Yield the rows of an opened set, and what cannot be read; ``without_images`` leaves stored
    images unread (they are then {"bytes": None, "path": None}) where no row needs them.
    """
    stored.left_out.clear()
    schema = schema_of(stored.columns) or SCHEMAS[0]
    sized = {"width", "height"} <= set(stored.columns)
    without_images = without_images and (schema.single or sized)
    columns = [c for c in stored.columns if c != schema.image] if without_images else None
    labels = {stored.rename.get(name, name): names for name, names in stored.labels.items()}
    context = Context(stored, labels, stored.image_root(), RowLocation(stored.path))
    for entry in stored.records(columns):
        if isinstance(entry, BadRow):
            yield entry
            continue
        context.place, record = entry
        if without_images:
            record.setdefault(schema.image, {"bytes": None, "path": None})
        try:
            _put_names(record, labels)
            if record.get("system") is None and "system_prompt" in record:  # ms-swift's other name
                record["system"] = record.pop("system_prompt")
            for example in schema.rows(dict(record), context):
                yield _row(context, schema, record, example)
        except MisreadBoxes:  # of the set, not of the row
            raise
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            text = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
            yield BadRow(context.place, text)


def sized_rows(
    stored: StoredSet, num_proc: int = 1, *, decoded: bool = True
) -> Iterator[tuple[Row | BadRow, ImageSize | str | None]]:
    """Yield every row with the size of its image, or why it cannot be trained on; several images
    are looked at at once, and ``decoded`` as in ``image_size``.
    """
    sizes: dict[str | int, ImageSize | str] = {}
    rows, threads = rows_of(stored), max(num_proc, min(os.cpu_count() or 1, MAX_THREADS))
    look = partial(try_image_size, decoded=decoded)
    pool = ThreadPoolExecutor(threads)
    try:
        while part := list(islice(rows, PART_ROWS)):
            images = {_key(row.image): row.image for row in part if isinstance(row, Row)}
            new = [key for key in images if key not in sizes]
            # Bytes that need no decoding take less time than their way to a thread.
            slow = decoded or any(isinstance(key, str) for key in new)
            looked = (pool.map if slow else map)(look, [images[key] for key in new])
            sizes |= zip(new, looked, strict=True)
            for row in part:
                yield row, sizes[_key(row.image)] if isinstance(row, Row) else None
            for key in new:
                if isinstance(key, int):  # the next part may have it again
                    del sizes[key]
    finally:  # Waiting, a generator that is collected while a thread begins would stand still.
        pool.shutdown(wait=False)


def _key(image: dict[str, Any]) -> str | int:
    """The same for rows that show one image: a file, or the bytes of one record."""
    content = image["bytes"]
    return str(image["path"]) if content is None else id(content)


def _row(
    context: Context, schema: RecordSchema, record: Record, example: RawExample
) -> Row | BadRow:
    """Make a row of an example that its record gave."""
    stored, place = context.stored, context.place
    image, problem, solution, annotated = (example.get(name) for name in FIELDS)
    columns = {safe_name(name): value for name, value in example.items() if name not in FIELDS}
    stored.renamed_columns |= example.keys() - columns.keys() - FIELDS.keys()
    declared = record.get("task") or stored.task
    task = declared or columns.get("task") or None
    guess = None if declared else task or task_of(solution)
    if task is None and schema.name == "virft" and guess == "grounding":
        guess = "detection"  # ViRFT's rows of one box ask for all objects of a category
    box_format = columns.get("frame") or stored.box_format
    boxed = task in BOX_TASKS
    if task is None:
        boxed = guess != "classification"
        box_format = box_format if read_boxes(gold_text(solution)) is not None else None
    columns["task"], columns["frame"] = task, box_format or ("norm1000" if boxed else None)
    try:
        take = video_of if schema.name == "video" else image_of
        image = take(image, stored.folder, context.root)
    except ValueError as error:
        return BadRow(place, str(error))
    if not isinstance(annotated, AnnotatedSize):
        exact = not schema.single or columns["frame"] == "pixels"
        annotated = annotated_size_of(record, exact=exact)
    column = None
    own = example["image"] is record.get(schema.image) and not isinstance(stored, JsonFiles)
    if own and image["bytes"] is not None:
        column = stored.names[stored.columns.index(schema.image)]
    # Whether problem and solution are text is for validate.py to say.
    return Row(place, image, problem, solution, columns, annotated, guess, column)  # type: ignore


def _put_names(record: Record, labels: Mapping[str, list[str]]) -> None:
    """Replace the numbers of classes by names, and a task or frame that is missing by None: pandas
    writes it as NaN or as a blank.
    """
    for name in record.keys() & labels.keys():
        if record[name] is not None:
            record[name] = _named(record[name], labels[name], name)
    for name in ("task", "frame", "system", "system_prompt"):
        value = record.get(name)
        if value != value or (isinstance(value, str) and not value.strip()):
            record[name] = None
        elif isinstance(value, (list, dict)):
            raise ValueError(f"the {name} is {str(value)[:80]}; a text is needed")


def _named(value: Any, names: list[str], column: str) -> Any:
    """A column's value with names for numbers. ``datasets`` writes -1 for no class at all. Of an
    object it is not known which number is a class: coco.py knows of its own.
    """
    if isinstance(value, list):
        return [_named(item, names, column) for item in value]
    if column in STATED:
        return class_name(value, names, column)
    if not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None
