"""Storage formats: how the records of a set are stored, whatever they mean.

    ParquetFiles   train-00000-of-00002.parquet
    ArrowFiles     data-00000-of-00001.arrow, as ``save_to_disk`` writes it
    JsonFiles      rows.jsonl, rows.json
    Table, Stream  what ms-swift downloaded

and CocoFile in coco_json.py. opening.py finds the one that a path holds; schemas.py says what
records mean.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from swift_vlrft.datasets.image import ImageError, ImageInfo, image_path
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.jsonl import Broken, LineError, json_lines, read_json

if TYPE_CHECKING:
    import pyarrow as pa

Record = dict[str, Any]
Found = tuple[RowLocation, Record] | BadRow
Records = Iterator[Found]

Origin = list[tuple[Path, int]]
"""How many rows of a table are of which file, in order."""
Infos = list[ImageInfo | ImageError | None]
"""Of the image of every row; None if it holds no bytes."""

BATCH_ROWS = 64
"""Rows per batch: pyarrow's default of 65,536 would be many gigabytes of photographs."""
FIRST_RECORDS = 200
"""Records of a stream that are inspected before the first one is passed on."""
FIRST_LINES = 100
"""Records of JSON whose keys are the columns of the set."""
LONGEST_LINE = 16 << 20
"""Bytes of a first line that may be a row; COCO's annotations in one line are more."""


@dataclass
class StoredSet:
    """A set in some storage format. ``files`` are those of the split asked for, ``names`` the
    columns as they are stored, ``labels`` the names of a ClassLabel by stored column.

    ``rename`` maps stored columns to ours; ``task`` and ``box_format`` hold where a row's own
    columns state none; relative image paths start from ``root``, and none may leave it, or else
    from ``folder``.
    """

    path: Path
    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: dict[str, list[str]] = field(default_factory=dict)
    rename: dict[str, str] = field(default_factory=dict)
    root: Path | None = None
    task: str | None = None
    box_format: str | None = None
    broken: list[BadRow] = field(default_factory=list)
    """Files of the set that cannot be read."""
    unnamed: list[Path] = field(default_factory=list)
    """Files of the same format without a split in their names, if others have one."""
    other: list[Path] = field(default_factory=list)
    """Files beside them in formats that are not read."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """Counts, by reason, of what correctly makes no row; filled while rows are read."""

    kind: ClassVar[str] = "JSON"

    @property
    def columns(self) -> list[str]:
        return [self.rename.get(name, name) for name in self.names]

    def stored_name(self, column: str) -> str:
        return self.names[self.columns.index(column)]

    @property
    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def image_root(self) -> Path | None:
        """The folder that image paths may not leave."""
        return self.root

    def records(self, columns: Sequence[str] | None = None) -> Records:
        """Every record in order, by default with all columns; a BadRow for what cannot be read."""
        yield from self.broken
        chosen = [
            name
            for name, column in zip(self.names, self.columns, strict=True)
            if columns is None or column in columns
        ]
        for found in self._read(chosen):
            if isinstance(found, BadRow):
                yield found
            else:
                yield found[0], {self.rename.get(k, k): value for k, value in found[1].items()}

    def sample(self, columns: Sequence[str]) -> Iterator[Record]:
        """The records by which the set is known as a whole: all of them, but of a stream."""
        return (found[1] for found in self.records(columns) if not isinstance(found, BadRow))

    def _read(self, names: list[str]) -> Records:
        for file in self.files:
            try:
                yield from self._read_file(file, names)
            except DataError as error:
                yield BadRow(RowLocation(file), str(error))

    def _read_file(self, file: Path, names: list[str]) -> Records:
        raise NotImplementedError


def image_of(value: Any, folder: Path, root: Path | None) -> dict[str, Any]:
    """An image column's value, in any of its forms, as {"bytes", "path"}; ValueError says what is
    wrong with it.
    """
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"the row has {len(value)} images; rows of one image are supported")
        value = value[0]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(value), "path": None}
    if isinstance(value, str):
        if value.startswith("data:"):
            return {"bytes": _of_data_url(value), "path": None}
        value = {"bytes": None, "path": value}
    if not isinstance(value, dict) or not {"bytes", "path"} & value.keys():
        raise ValueError(f"the image is {str(value)[:80]!r}; bytes, or a path, is needed")
    content, path = value.get("bytes"), value.get("path")
    if content is None and path:
        path = str(image_path(str(path), folder, root))
    return {"bytes": content, "path": path}


def _of_data_url(text: str) -> bytes:
    """The bytes of ``data:image/png;base64,iVBORw0...``, which ms-swift takes for an image, too."""
    kind, comma, content = text.partition(";base64,")
    try:
        if not comma:
            raise ValueError("no ;base64, in it")
        return base64.b64decode(content, validate=True)
    except ValueError as error:
        raise ValueError(f"the image {kind[:60]}... is no base64 text ({error})") from error


# ---- files that state their columns ----------------------------------------------------------


@dataclass
class ColumnFiles(StoredSet):
    """Parquet or Arrow."""

    @staticmethod
    def _schema(file: Path) -> pa.Schema:
        raise NotImplementedError

    @staticmethod
    def _batches(file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    @classmethod
    def schema_of_file(cls, file: Path) -> pa.Schema:
        import pyarrow as pa

        try:
            return cls._schema(file)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{file} cannot be read as {cls.kind} ({error}); copy or download it again"
            ) from error

    @classmethod
    def of_files(cls, path: Path, files: Sequence[Path], *, keep_going: bool = False) -> Self:
        """DataError if a file is broken, or its columns or classes are others than the first
        one's; with ``keep_going`` such a file goes to ``broken``.
        """
        made = cls(path)
        for file in files:
            try:
                schema = cls.schema_of_file(file)
                labels = labels_of(_features(schema))
                if made.files:
                    made._compare(file, schema.names, labels)
            except DataError as error:
                if not keep_going:
                    raise
                made.broken.append(BadRow(RowLocation(file), str(error)))
                continue
            if not made.files:
                made.names, made.labels = schema.names, labels
            made.files.append(file)
        return made

    def _compare(self, file: Path, names: list[str], labels: dict[str, list[str]]) -> None:
        first = self.files[0].name
        if set(names) != set(self.names):
            raise DataError(
                f"{file} has the columns {', '.join(names)}, but {first} has "
                f"{', '.join(self.names)}; all files of a set need the same columns"
            )
        if labels != self.labels:
            raise DataError(
                f"{file} names its classes otherwise than {first}: {_briefly(labels)}, but "
                f"{_briefly(self.labels)}; save both with the same ClassLabel"
            )

    def images_lie_ready(self) -> bool:
        """Whether the column image holds {bytes, path} or bytes, which can be handed on as they
        lie; else it holds paths, lists, or other types.
        """
        column = self.stored_name("image")
        return all(_lies_ready(self.schema_of_file(file).field(column).type) for file in self.files)

    def _read_file(self, file: Path, names: list[str]) -> Records:
        import pyarrow as pa

        row = 0
        try:
            for batch in self._batches(file, names):
                for record in batch.to_pylist():
                    yield RowLocation(file, row), record
                    row += 1
        except (pa.ArrowException, OSError) as error:
            where = f"after row {row - 1}" if row else "before its first row"
            raise DataError(
                f"{file} breaks off or is damaged {where} ({error}); copy or download it again"
            ) from error


@dataclass
class ParquetFiles(ColumnFiles):
    kind: ClassVar[str] = "Parquet"

    @staticmethod
    def _schema(file: Path) -> pa.Schema:
        import pyarrow.parquet as pq

        return pq.read_schema(file)

    @staticmethod
    def _batches(file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as opened:
            yield from opened.iter_batches(batch_size=BATCH_ROWS, columns=names)


@dataclass
class ArrowFiles(ColumnFiles):
    kind: ClassVar[str] = "Arrow"

    @staticmethod
    def _schema(file: Path) -> pa.Schema:
        import pyarrow as pa

        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_stream(source).schema

    @staticmethod
    def _batches(file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with pa.memory_map(str(file)) as source:
            for batch in pa.ipc.open_stream(source):
                for start in range(0, len(batch), BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS).select(names)


def _lies_ready(kind: pa.DataType) -> bool:
    import pyarrow as pa

    parts = {one.name: one.type for one in kind} if pa.types.is_struct(kind) else {"bytes": kind}
    path = parts.get("path", pa.null())
    texts = (pa.string(), pa.large_string(), pa.null())
    return parts.get("bytes") in (pa.binary(), pa.large_binary()) and path in texts


def _features(schema: pa.Schema) -> Any:
    """The features as ``datasets`` stored them beside the columns; {} where it did not."""
    text = (schema.metadata or {}).get(b"huggingface")
    try:
        return json.loads(text)["info"]["features"] if text else {}
    except (ValueError, KeyError, TypeError):
        return {}


def labels_of(features: Any) -> dict[str, list[str]]:
    """By column, the names of the first ClassLabel anywhere in its features."""

    def names(inside: Any) -> list[str]:
        if isinstance(inside, dict):
            if inside.get("_type") == "ClassLabel" and inside.get("names"):
                return [str(name) for name in inside["names"]]
            inside = list(inside.values())
        parts = inside if isinstance(inside, list) else []
        return next((found for part in parts if (found := names(part))), [])

    items = features.items() if isinstance(features, dict) else ()
    return {column: found for column, inside in items if (found := names(inside))}


def _briefly(labels: dict[str, list[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(n)[:100]}" for name, n in labels.items()) or "none"


# ---- what was downloaded ---------------------------------------------------------------------


@dataclass
class Table(StoredSet):
    """Rows in memory or memory-mapped, with the infos of their images where these are known."""

    table: Any = None
    origin: Origin = field(default_factory=list)
    infos: Infos = field(default_factory=list)
    features: Any = None
    """Of ``datasets``, where the table does not bear them."""

    def column(self, name: str) -> pa.ChunkedArray:
        return self.table.column(self.stored_name(name))

    def images_lie_ready(self) -> bool:
        return _lies_ready(self.column("image").type)

    def _read(self, names: list[str]) -> Records:
        start = 0
        light = self.table.select(names)
        for file, count in self.origin:
            row = 0
            for batch in light.slice(start, count).to_batches(max_chunksize=1000):
                for record in batch.to_pylist():
                    yield RowLocation(file, row), record
                    row += 1
            start += count


@dataclass
class Stream(StoredSet):
    """Records of a stream, which is never read to its end for inspection."""

    content: Any = ()
    _first: list[Record] = field(default_factory=list)

    def _read(self, names: list[str]) -> Records:
        records = iter(self.content)
        first = list(islice(records, FIRST_RECORDS))
        # Without the images, which are let go when their rows were handed on.
        self._first = [record | {"image": None} for record in first]
        for number, record in enumerate(chain(first, records)):
            yield RowLocation(self.path, number), record

    def sample(self, columns: Sequence[str]) -> Iterator[Record]:
        return iter(self._first)


# ---- JSON ------------------------------------------------------------------------------------


@dataclass
class JsonFiles(StoredSet):
    """JSON Lines, or a list."""

    def add(self, file: Path) -> None:
        """DataError if it cannot be read at all."""
        columns = dict.fromkeys(self.names)
        for number, found in enumerate(self._read_file(file, [])):
            if not isinstance(found, BadRow):
                columns |= dict.fromkeys(found[1])
            if number >= FIRST_LINES and columns:
                break
        self.names = list(columns)
        self.files.append(file)

    def _read_file(self, file: Path, names: list[str]) -> Records:
        with json_errors(file):
            if is_lines(file):
                values = ((f"line {number}", value) for number, value in json_lines(file))
            else:
                content = read_json(file)
                if not isinstance(content, list):
                    raise DataError(f"{file} holds no list of rows")
                values = ((f"row {number}", value) for number, value in enumerate(content))
            for row, (line, record) in enumerate(values):
                place = RowLocation(file, row)
                if isinstance(record, dict):
                    yield place, record
                elif isinstance(record, Broken):
                    yield BadRow(place, record.problem.removeprefix(f"{file}, "))
                else:
                    text = f"{line}: an object is needed, found {str(record)[:80]!r}"
                    yield BadRow(place, text)


@contextmanager
def json_errors(file: Path) -> Iterator[None]:
    """The problem of a JSON file, as a DataError."""
    try:
        yield
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
