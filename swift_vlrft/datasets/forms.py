"""What lies on disk, whichever way it was stored: found by looking, read record by record.

    folder/train-00000-of-00002.parquet           Parquet, with splits and shards
    folder/dataset_dict.json, train/state.json    ``save_to_disk`` of a DatasetDict or a Dataset
    rows.jsonl, rows.json                         JSON with image paths
    instances_train2017.json                      COCO's annotations

A form gives its columns and its records; what a record means is decided in shapes.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.instances import without_outline
from swift_vlrft.datasets.parquet import column_names, light_rows, parquet_files
from swift_vlrft.datasets.row import BadRow, Place
from swift_vlrft.datasets.source import DataError

Record = dict[str, Any]
Records = Iterator[tuple[Place, Record] | BadRow]

SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
"""Splits as files name them, and as the hubs do."""


@dataclass
class Form:
    """A set on disk. ``files`` are those of the split asked for; relative image paths start from
    ``folder``; ``class_names`` are the names behind whole numbers in a column of classes.
    """

    kind: str
    path: Path
    files: list[Path]
    columns: list[str]
    class_names: list[str] | None = None
    content: Any = None
    """Of kind table: the table, and how many of its rows are of which file; of kind stream: the
    records.
    """
    broken: list[BadRow] = field(default_factory=list)
    """Files of the set that cannot be read at all."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """What made no row though nothing is wrong with it, by reason; known when all rows were
    read.
    """

    @property
    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def lies_ready(self, column: str) -> bool:
        """Whether a column of Parquet or Arrow files holds pictures as {bytes, path}, bytes or
        paths, which can be handed on as they lie; else in lists or in types of other kinds.
        """
        import pyarrow as pa

        plain = {pa.binary(), pa.large_binary(), pa.string(), pa.large_string()}
        for file in self.files:
            found = _schema(self.kind, file).field(column).type
            parts = {f.name: f.type for f in found} if pa.types.is_struct(found) else {"": found}
            known = [kind for name, kind in parts.items() if name in ("", "bytes", "path")]
            if not known or not plain.issuperset(known):
                return False
        return True

    def records(self, columns: Sequence[str] | None = None) -> Records:
        """Every record in order, ``columns`` of it or all; a BadRow for what cannot be read."""
        yield from self.broken
        wanted = self.columns if columns is None else columns
        if self.kind == "table":
            table, origin = self.content
            yield from _table_records(table, origin, wanted)
            return
        if self.kind == "stream":
            yield from ((Place(self.path, n), record) for n, record in enumerate(self.content))
            return
        for file in self.files:
            try:
                yield from _READERS[self.kind](file, wanted)
            except DataError as error:
                yield BadRow(Place(file), str(error))


def find_form(path: Path, split: str = "train", *, keep_going: bool = False) -> Form | None:
    """The form of the set at ``path``; None where nothing in it is known.

    DataError where it does not exist, has splits but not this one, or a file is broken; with
    ``keep_going`` a broken file is left to ``Form.broken``.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist (from {Path.cwd()})")
    if path.is_dir() and (path / "dataset_dict.json").is_file():
        path = _split_of_dict(path, split)
    if path.is_dir() and (path / "state.json").is_file():
        return _arrow_form(path, keep_going)
    if path.suffix in (".json", ".jsonl"):
        return _json_form(path, [path], keep_going)
    if files := parquet_files(path, split):
        return _with_headers("parquet", path, files, keep_going)
    if path.is_dir():
        found = sorted([*path.glob("*.jsonl"), *path.glob("*.json")])
        found = [f for f in found if f.name not in ("dataset_infos.json", "dataset_info.json")]
        spoken = [f for f in found if split in _words_of(f)]
        # One of several splits by its name (refcoco_train_val.jsonl) is of one of them only.
        named = [f for f in spoken if split_of_json(f) in (None, split)] or spoken
        if files := named or (found if len(found) == 1 else []):
            return _json_form(path, files, keep_going)
    return None


def _with_headers(kind: str, path: Path, files: list[Path], keep_going: bool) -> Form:
    """A form of files that state their columns, all the same ones."""
    names: list[str] | None = None
    whole: list[Path] = []
    broken: list[BadRow] = []
    for file in files:
        try:
            found = column_names([file]) if kind == "parquet" else _arrow_schema(file).names
            if names is not None and set(found) != set(names):
                raise DataError(
                    f"{file} has the columns {', '.join(found)}, "
                    f"but {whole[0].name} has {', '.join(names)}; "
                    "all files of a set need the same columns"
                )
        except DataError as error:
            if not keep_going:
                raise
            broken.append(BadRow(Place(file), str(error)))
            continue
        names = names or found
        whole.append(file)
    form = Form(kind, path, whole, names or [], broken=broken)
    if whole:
        form.class_names = class_names_of(_metadata(kind, whole[0]))
    return form


# ---- Parquet ---------------------------------------------------------------------------------


def _parquet_records(file: Path, columns: Sequence[str]) -> Iterator[tuple[Place, Record]]:
    import pyarrow as pa

    try:
        yield from light_rows([file], list(columns))
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{file} breaks off or is damaged ({error}); copy or download it again"
        ) from error


def _metadata(kind: str, file: Path) -> Any:
    """The features as ``datasets`` stored them beside the columns; {} where it did not."""
    text = (_schema(kind, file).metadata or {}).get(b"huggingface")
    try:
        return json.loads(text)["info"]["features"] if text else {}
    except (ValueError, KeyError, TypeError):
        return {}


def _schema(kind: str, file: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_schema(file) if kind == "parquet" else _arrow_schema(file)


def class_names_of(features: Any) -> list[str] | None:
    """The names of the first ClassLabel anywhere in the features."""
    if isinstance(features, dict):
        if features.get("_type") == "ClassLabel" and features.get("names"):
            return [str(name) for name in features["names"]]
        for value in features.values():
            if names := class_names_of(value):
                return names
    if isinstance(features, list):
        for value in features:
            if names := class_names_of(value):
                return names
    return None


# ---- save_to_disk ----------------------------------------------------------------------------


def _split_of_dict(path: Path, split: str) -> Path:
    try:
        splits = json.loads((path / "dataset_dict.json").read_text())["splits"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}/dataset_dict.json is damaged ({error}); save it again") from error
    if split not in splits:
        raise DataError(f"{path}: no split {split!r} in this DatasetDict; it has {_list(splits)}")
    return path / split


def _arrow_form(path: Path, keep_going: bool) -> Form:
    try:
        state = json.loads((path / "state.json").read_text())
        files = [path / entry["filename"] for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}/state.json is damaged ({error}); save the set again") from error
    return _with_headers("arrow", path, files, keep_going)


def _arrow_schema(file: Path) -> Any:
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_stream(source).schema
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{file} cannot be read as Arrow ({error}); copy it again or save the set again"
        ) from error


def _arrow_records(file: Path, columns: Sequence[str]) -> Iterator[tuple[Place, Record]]:
    import pyarrow as pa

    row = 0
    try:
        with pa.memory_map(str(file)) as source:
            for batch in pa.ipc.open_stream(source):
                for start in range(0, len(batch), 64):
                    for values in batch.slice(start, 64).select(list(columns)).to_pylist():
                        yield Place(file, row), values
                        row += 1
    except (pa.ArrowException, OSError) as error:
        where = f"after row {row - 1}" if row else "before its first row"
        raise DataError(
            f"{file} breaks off or is damaged {where} ({error}); copy it again"
        ) from error


def _table_records(
    table: Any, origin: list[tuple[Path, int]], columns: Sequence[str]
) -> Iterator[tuple[Place, Record]]:
    start = 0
    light = table.select(list(columns))
    for file, count in origin:
        row = 0
        for batch in light.slice(start, count).to_batches(max_chunksize=1000):
            for values in batch.to_pylist():
                yield Place(file, row), values
                row += 1
        start += count


# ---- JSON ------------------------------------------------------------------------------------


def split_of_json(file: Path) -> str | None:
    """The one split that a JSON file's name speaks of, as it writes it: of refcoco_train_val.jsonl
    train. None where it speaks of none.
    """
    return next((split for split in SPLITS if split in _words_of(file)), None)


def _words_of(file: Path) -> list[str]:
    return file.stem.replace("_", "-").split("-")


def _json_form(path: Path, files: list[Path], keep_going: bool) -> Form:
    columns: dict[str, None] = {}
    whole, broken = [], []
    for file in files:
        try:
            # Outlines are most of COCO's annotations, and nothing here needs them.
            content = None if file.suffix == ".jsonl" else _json_content(file, without_outline)
            if isinstance(content, dict):
                if not {"images", "annotations", "categories"} <= set(content):
                    raise DataError(
                        f"{file} holds one object with {_list(content)}; expected a list of rows, "
                        "or COCO's images, annotations and categories"
                    )
                return Form("coco", file, [file], list(content))
            for n, found in enumerate(_json_records(file, (), content)):
                if not isinstance(found, BadRow):
                    columns |= dict.fromkeys(found[1])
                if n >= 100 and columns:
                    break
            whole.append(file)
        except DataError as error:
            if not keep_going:
                raise
            broken.append(BadRow(Place(file), str(error)))
    return Form("json", path, whole, list(columns), broken=broken)


def _json_content(file: Path, object_hook: Callable[[Any], Any] | None = None) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"), object_hook=object_hook)
    except (OSError, UnicodeError) as error:
        raise DataError(f"{file} cannot be read ({error})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON ({error}); copy or download it again") from error


def _json_records(file: Path, columns: Sequence[str], content: Any = None) -> Records:
    """Every row; a line that cannot be read is a bad row and leaves the others as they are.
    ``content`` is that of a .json file, where it was read already.
    """
    for row, (line, record) in enumerate(_json_values(file, content)):
        if isinstance(record, dict):
            yield Place(file, row), record
        elif isinstance(record, DataError):
            yield BadRow(Place(file, row), f"{line} {record}")
        else:
            found = f"an object is needed, found {str(record)[:80]!r}"
            yield BadRow(Place(file, row), f"{line}: {found}")


def _json_values(file: Path, content: Any = None) -> Iterator[tuple[str, Any]]:
    if file.suffix == ".json":
        content = _json_content(file) if content is None else content
        if not isinstance(content, list):
            raise DataError(f"{file} holds no list of rows")
        yield from ((f"row {i}", value) for i, value in enumerate(content))
        return
    try:
        with open(file, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        yield f"line {number}", json.loads(line.decode("utf-8-sig"))
                    except UnicodeError as error:
                        yield f"line {number}", DataError(f"is not UTF-8 ({error})")
                    except (ValueError, RecursionError) as error:
                        yield f"line {number}", DataError(f"is not JSON ({error})")
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error})") from error


def _list(names: Any) -> str:
    return ", ".join(map(str, names))


_READERS: dict[str, Callable[[Path, Sequence[str]], Records]] = {
    "parquet": _parquet_records,
    "arrow": _arrow_records,
    "json": _json_records,
}
