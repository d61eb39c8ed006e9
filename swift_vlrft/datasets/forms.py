"""What lies on disk, whichever way it was stored: found by looking, read record by record.

    folder/train-00000-of-00002.parquet           Parquet, with splits and shards
    folder/dataset_dict.json, train/state.json    ``save_to_disk`` of a DatasetDict or a Dataset
    rows.jsonl, rows.json                         JSON with image paths
    instances_train2017.json                      COCO's annotations

A form gives its columns and its records; what a record means is decided in schemas.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.instances import without_outline
from swift_vlrft.datasets.parquet import PARQUET, column_names, files_below
from swift_vlrft.datasets.records import (
    READERS,
    Records,
    arrow_schema,
    features_of,
    is_lines,
    json_content,
    json_records,
    labels_of,
    schema_of_file,
    table_records,
)
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import (
    SPLITS,
    by_split,
    folders_of_sets,
    listed,
    names_of_splits,
    of_split,
    split_of,
    splits_in,
    walked,
)

JSON = (".json", ".jsonl")
NO_ROWS = frozenset(
    {
        *("config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"),
        *("state.json", "left_out.jsonl"),
    }
)
"""JSON that says something of a set: written by ``datasets``, the hubs, and ``vlrft data``."""
BESIDE = frozenset(
    [
        ".png",
        ".jpg",
        ".jpeg",
        ".webp",
        ".bmp",
        ".gif",
        ".tif",
        ".tiff",
        ".avif",
        ".heic",
        ".jp2",
        ".ppm",
        ".pgm",
        ".svg",
        ".md",
        ".txt",
        ".rst",
        ".html",
        ".pdf",
        ".py",
        ".sh",
        ".ipynb",
        ".yaml",
        ".yml",
        ".toml",
        ".cfg",
        ".ini",
        ".lock",
    ]
)
"""Endings of what lies beside rows and holds none: pictures, documents, code."""


@dataclass
class Form:
    """A set on disk. ``files`` are those of the split asked for; relative image paths start from
    ``folder``; ``labels`` are the names behind whole numbers, by column: of a ClassLabel in it.
    """

    kind: str
    path: Path
    files: list[Path]
    columns: list[str]
    labels: dict[str, list[str]] = field(default_factory=dict)
    content: Any = None
    """Of kind table: the table, and how many of its rows are of which file; of kind stream: the
    records.
    """
    broken: list[BadRow] = field(default_factory=list)
    """Files of the set that cannot be read at all."""
    unnamed: list[Path] = field(default_factory=list)
    """Files of the same kind that are of no split by their names, though others are."""
    other: list[Path] = field(default_factory=list)
    """Files beside them that are of no kind that is read."""
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
            found = schema_of_file(self.kind, file).field(column).type
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
            yield from table_records(table, origin, wanted)
            return
        if self.kind == "stream":
            yield from (
                (RowLocation(self.path, n), record) for n, record in enumerate(self.content)
            )
            return
        for file in self.files:
            try:
                yield from READERS[self.kind](file, wanted)
            except DataError as error:
                yield BadRow(RowLocation(file), str(error))


def find_form(path: Path, split: str = "train", *, keep_going: bool = False) -> Form | None:
    """The form of the set at ``path``; None where nothing in it is known.

    DataError where it does not exist, has splits but not this one, or a file is broken; with
    ``keep_going`` a broken file is left to ``Form.broken``.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist (from {Path.cwd()})")
    if path.is_dir() and (path / "dataset_dict.json").is_file():
        return _dict_form(path, split, keep_going)
    if path.is_dir() and (path / "state.json").is_file():
        return _arrow_form(path, [path], keep_going)
    if path.is_dir():
        return _folder_form(path, split, keep_going)
    if path.suffix.lower() in JSON:
        return _json_form(path, [path], keep_going)
    if path.suffix.lower() in PARQUET:
        return _with_headers("parquet", path, [path], keep_going)
    return None


def splits_of(path: Path) -> list[str]:
    """The splits that lie at ``path``, as its files name them; ["train"] where none are named."""
    if (path / "dataset_dict.json").is_file():
        try:
            names = _splits_of_dict(path)
        except DataError:
            return ["train"]  # reading it says what is wrong
        found = dict.fromkeys(next(iter(splits_in(name)), name) for name in names)
        return list(found) or ["train"]
    files = [path] if path.is_file() else _files_of_folder(path)[1]
    return names_of_splits(files, path) or ["train"]


def unread_notes(form: Form) -> list[str]:
    """Which files of a folder were not read, or as one set with others, and what to do."""
    notes = []
    apart = folders_of_sets(form.files, form.path)
    if len(apart) > 1:
        notes.append(
            f"{form.path}: what lies in {listed(apart, form.path)} is read as one set. Where these "
            f"are several, as the configurations of a set on a hub are, give one: {apart[0]}"
        )
    if form.unnamed:
        notes.append(
            f"{form.path}: not read, since their names tell no split while others' do: "
            f"{listed(form.unnamed, form.path)}. Put train, validation or test into the name, or "
            "give such a file itself"
        )
    if form.other:
        notes.append(
            f"{form.path}: not read, since rows come from {_name_of(form.kind)} files here: "
            f"{listed(form.other, form.path)}"
        )
    return notes


def unread_rows(form: Form) -> list[Path]:
    """Files that were not read though they seem to hold rows of the set."""
    lists = [f for f in form.unnamed if f.suffix.lower() != ".json" or not _is_object(f)]
    spoken = [f for f in form.other if split_of(f, form.path) or splits_in(f.name)]
    return lists + spoken


def why_unknown(path: Path) -> str:
    """What to say of a path that is no set in any form."""
    text = (
        f"{path} holds no data set that is known: neither Parquet files, nor a folder of "
        "save_to_disk, nor JSON"
    )
    files = _files_of_folder(path)[1] if path.is_dir() else []
    if len(files) > 1:
        return (
            f"{path} holds several JSON files, and their names tell no split: "
            f"{listed(files, path)}. Give the one to read, or put train, validation or test into "
            "the names"
        )
    there = _other_files(path, []) if path.is_dir() else []
    known = [file for file in there if file.suffix.lower() in JSON]
    if known:
        return (
            f"{path} holds JSON in folders below it, and their names tell no split: "
            f"{listed(known, path)}. Give the file to read"
        )
    return f"{text}. It has {listed(there, path)}" if there else text


def _other_files(path: Path, files: Sequence[Path]) -> list[Path]:
    known = set(files)
    return [
        file
        for file in walked(path)
        if file not in known
        and file.suffix
        and file.suffix.lower() not in BESIDE
        and file.name not in NO_ROWS
    ]


def _name_of(kind: str) -> str:
    return {"parquet": "Parquet", "arrow": "save_to_disk's"}.get(kind, "JSON")


def _is_object(file: Path) -> bool:
    try:
        with open(file, "rb") as opened:
            return opened.read(1000).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    except OSError:
        return False


def _files_of_folder(path: Path) -> tuple[str, list[Path]]:
    """Parquet where there is any; else the JSON in the folder itself, and, unless that tells no
    split, below it what a split is named for: a folder of pictures may hold a JSON file for each.
    """
    if files := files_below(path, PARQUET):
        return "parquet", files
    files = [f for f in files_below(path, JSON) if f.name not in NO_ROWS]
    found = by_split(files, path)
    here = [f for f in files if f.parent == path]
    if here and not any(found[f] for f in here):
        return "json", here
    return "json", [f for f in files if f.parent == path or found[f] or splits_in(f.stem)]


def _folder_form(path: Path, split: str, keep_going: bool) -> Form | None:
    kind, files = _files_of_folder(path)
    if not files:
        return None
    chosen, unnamed = of_split(files, path, split, _name_of(kind))
    if kind == "parquet":
        form = _with_headers("parquet", path, chosen, keep_going)
    else:
        series = {re.sub(r"\d+", "0", file.name) for file in chosen}
        if len(series) > 1 and not any(by_split(files, path).values()):
            return None  # nobody says which of them are rows
        form = _json_form(path, chosen, keep_going)
    form.unnamed = unnamed
    form.other = _other_files(path, files)
    return form


def _with_headers(kind: str, path: Path, files: list[Path], keep_going: bool) -> Form:
    """A form of files that state their columns, all the same ones."""
    names: list[str] | None = None
    labels: dict[str, list[str]] | None = None
    whole: list[Path] = []
    broken: list[BadRow] = []
    for file in files:
        try:
            found = column_names([file]) if kind == "parquet" else arrow_schema(file).names
            if names is not None and set(found) != set(names):
                raise DataError(
                    f"{file} has the columns {', '.join(found)}, "
                    f"but {whole[0].name} has {', '.join(names)}; "
                    "all files of a set need the same columns"
                )
            named = labels_of(features_of(kind, file))
            if labels is not None and named != labels:
                raise DataError(
                    f"{file} names its classes otherwise than {whole[0].name}: {_briefly(named)}, "
                    f"but {_briefly(labels)}; save both with the same ClassLabel"
                )
        except DataError as error:
            if not keep_going:
                raise
            broken.append(BadRow(RowLocation(file), str(error)))
            continue
        names, labels = names or found, named
        whole.append(file)
    return Form(kind, path, whole, names or [], labels=labels or {}, broken=broken)


# ---- save_to_disk ----------------------------------------------------------------------------


def _splits_of_dict(path: Path) -> list[str]:
    try:
        return [
            str(name) for name in json.loads((path / "dataset_dict.json").read_text())["splits"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}/dataset_dict.json is damaged ({error}); save it again") from error


def _dict_form(path: Path, split: str, keep_going: bool) -> Form:
    """Every split of a DatasetDict that is meant by ``split``: train and train_more are train."""
    names = _splits_of_dict(path)
    wanted = next(iter(splits_in(split)), split)
    chosen = [split] if split in names and split not in SPLITS else []
    chosen = chosen or [name for name in names if splits_in(name)[:1] == [wanted]]
    if not chosen:
        raise DataError(
            f"{path}: no split {split!r} in this DatasetDict; it has {', '.join(names)}"
        )
    whole = path / chosen[0] if len(chosen) == 1 else path
    return _arrow_form(whole, [path / name for name in chosen], keep_going)


def _arrow_form(path: Path, folders: Sequence[Path], keep_going: bool) -> Form:
    files: list[Path] = []
    for folder in folders:
        try:
            state = json.loads((folder / "state.json").read_text())
            files += [folder / entry["filename"] for entry in state["_data_files"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder}/state.json is damaged ({error}); save it again") from error
    form = _with_headers("arrow", path, files, keep_going)
    there = [f for folder in folders for f in sorted(folder.glob("*.arrow"))]
    form.other = [f for f in there if f not in files and not f.name.startswith("cache-")]
    return form


# ---- JSON ------------------------------------------------------------------------------------


def _json_form(path: Path, files: list[Path], keep_going: bool) -> Form:
    columns: dict[str, None] = {}
    whole, broken = [], []
    annotated: list[Form] = []
    for file in files:
        try:
            # Outlines are most of COCO's annotations, and nothing here needs them.
            content = None if is_lines(file) else json_content(file, without_outline)
            if isinstance(content, dict):
                if not {"images", "annotations", "categories"} <= set(content):
                    raise DataError(
                        f"{file} holds one object with {_list(content)}; expected a list of rows, "
                        "or COCO's images, annotations and categories"
                    )
                annotated.append(Form("coco", file, [file], list(content)))
                continue
            for n, found in enumerate(json_records(file, (), content)):
                if not isinstance(found, BadRow):
                    columns |= dict.fromkeys(found[1])
                if n >= 100 and columns:
                    break
            whole.append(file)
        except DataError as error:
            if not keep_going:
                raise
            broken.append(BadRow(RowLocation(file), str(error)))
    if annotated and len(files) > 1:
        raise DataError(
            f"{path} holds several JSON files where COCO's annotations are one: "
            f"{listed(files, path)}. Give the one to read"
        )
    return annotated[0] if annotated else Form("json", path, whole, list(columns), broken=broken)


def _list(names: Any) -> str:
    return ", ".join(map(str, names))


def _briefly(labels: dict[str, list[str]]) -> str:
    return "; ".join(f"{name}: {_list(names)[:100]}" for name, names in labels.items()) or "none"
