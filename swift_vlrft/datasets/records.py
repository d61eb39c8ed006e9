"""The records of one file, each with its place: Parquet, Arrow, JSON and JSON Lines; what they mean
is decided in schemas.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.parquet import light_rows
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.jsonl import Broken, LineError, json_lines, read_json

Record = dict[str, Any]
Records = Iterator[tuple[RowLocation, Record] | BadRow]

LONGEST_LINE = 16 << 20
"""Bytes of a first line that may be a row; COCO's annotations in one line are more."""


def schema_of_file(kind: str, file: Path) -> Any:
    """The columns with their types, as pyarrow has them."""
    import pyarrow.parquet as pq

    return pq.read_schema(file) if kind == "parquet" else arrow_schema(file)


def _parquet_records(file: Path, columns: Sequence[str]) -> Iterator[tuple[RowLocation, Record]]:
    import pyarrow as pa

    try:
        yield from light_rows([file], list(columns))
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{file} breaks off or is damaged ({error}); copy or download it again"
        ) from error


def features_of(kind: str, file: Path) -> Any:
    """The features as ``datasets`` stored them beside the columns; {} where it did not."""
    text = (schema_of_file(kind, file).metadata or {}).get(b"huggingface")
    try:
        return json.loads(text)["info"]["features"] if text else {}
    except (ValueError, KeyError, TypeError):
        return {}


def labels_of(features: Any) -> dict[str, list[str]]:
    """By column, the names of the ClassLabel in it."""
    items = features.items() if isinstance(features, dict) else ()
    return {name: names for name, inside in items if (names := _class_names(inside))}


def _class_names(features: Any) -> list[str] | None:
    """The names of the first ClassLabel anywhere in a column's features."""
    if isinstance(features, dict):
        if features.get("_type") == "ClassLabel" and features.get("names"):
            return [str(name) for name in features["names"]]
        for value in features.values():
            if names := _class_names(value):
                return names
    if isinstance(features, list):
        for value in features:
            if names := _class_names(value):
                return names
    return None


def arrow_schema(file: Path) -> Any:
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_stream(source).schema
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{file} cannot be read as Arrow ({error}); copy it again or save the set again"
        ) from error


def _arrow_records(file: Path, columns: Sequence[str]) -> Iterator[tuple[RowLocation, Record]]:
    import pyarrow as pa

    row = 0
    try:
        with pa.memory_map(str(file)) as source:
            for batch in pa.ipc.open_stream(source):
                for start in range(0, len(batch), 64):
                    for values in batch.slice(start, 64).select(list(columns)).to_pylist():
                        yield RowLocation(file, row), values
                        row += 1
    except (pa.ArrowException, OSError) as error:
        where = f"after row {row - 1}" if row else "before its first row"
        raise DataError(
            f"{file} breaks off or is damaged {where} ({error}); copy it again"
        ) from error


def table_records(
    table: Any, origin: list[tuple[Path, int]], columns: Sequence[str]
) -> Iterator[tuple[RowLocation, Record]]:
    start = 0
    light = table.select(list(columns))
    for file, count in origin:
        row = 0
        for batch in light.slice(start, count).to_batches(max_chunksize=1000):
            for values in batch.to_pylist():
                yield RowLocation(file, row), values
                row += 1
        start += count


def json_content(file: Path, object_hook: Callable[[Any], Any] | None = None) -> Any:
    """The value of a JSON file, each object in it through ``object_hook``."""
    try:
        return read_json(file, object_hook)
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error})") from error
    except LineError as error:
        raise DataError(str(error)) from error


def json_records(file: Path, columns: Sequence[str], content: Any = None) -> Records:
    """Every row; a line that cannot be read is a bad row and leaves the others as they are.
    ``content`` is that of a .json file, where it was read already.
    """
    for row, (line, record) in enumerate(_json_values(file, content)):
        if isinstance(record, dict):
            yield RowLocation(file, row), record
        elif isinstance(record, Broken):
            yield BadRow(RowLocation(file, row), record.problem.removeprefix(f"{file}, "))
        else:
            found = f"an object is needed, found {str(record)[:80]!r}"
            yield BadRow(RowLocation(file, row), f"{line}: {found}")


def _json_values(file: Path, content: Any = None) -> Iterator[tuple[str, Any]]:
    if content is not None or not is_lines(file):
        content = json_content(file) if content is None else content
        if not isinstance(content, list):
            raise DataError(f"{file} holds no list of rows")
        yield from ((f"row {i}", value) for i, value in enumerate(content))
        return
    try:
        yield from ((f"line {number}", value) for number, value in json_lines(file))
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error})") from error
    except LineError as error:
        raise DataError(str(error)) from error


def is_lines(file: Path) -> bool:
    """Whether every line is a row: ``Dataset.to_json("rows.json")`` writes such files, too."""
    if file.suffix.lower() == ".jsonl":
        return True
    try:
        with open(file, "rb") as lines:
            first = lines.readline(LONGEST_LINE)
            if not first.endswith(b"\n") or not any(line.strip() for line in lines):
                return False  # one object, one list, or a line as long as a whole file
        return isinstance(json.loads(first.decode("utf-8-sig")), dict)
    except (OSError, ValueError, RecursionError):
        return False  # reading it says what is wrong


READERS: dict[str, Callable[[Path, Sequence[str]], Records]] = {
    "parquet": _parquet_records,
    "arrow": _arrow_records,
    "json": json_records,
}
