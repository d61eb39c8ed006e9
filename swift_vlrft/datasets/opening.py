"""Find the set at a path by the ending of its name, or of the names in a folder.

folder/train-00000-of-00002.parquet           Parquet, with splits and shards
folder/dataset_dict.json, train/state.json    ``save_to_disk`` of a DatasetDict or a Dataset
rows.jsonl, rows.json, rows.csv               JSON or CSV with image paths
instances_train2017.json                      COCO's annotations

A folder holds Parquet, or else one set in JSON or CSV; where it holds several, the file to read has
to be named.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.coco import CocoFile
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.instances import decoded
from swift_vlrft.datasets.json_files import JsonFiles, is_lines
from swift_vlrft.datasets.row import BadRow, safe_name
from swift_vlrft.datasets.schema import EXPLICIT
from swift_vlrft.datasets.schemas import is_for_swift, schema_of, scores
from swift_vlrft.datasets.source import DataError, FileError
from swift_vlrft.datasets.splits import (
    WORDS,
    by_split,
    files_of_split,
    in_order,
    listed,
    splits_in,
    splits_told,
    walk,
)
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.geometry.box_format import BOX_FORMATS
from swift_vlrft.geometry.readings import ORDERS, reading_named

NO_ROWS = frozenset(
    {
        *("config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"),
        *("state.json", "left_out.jsonl"),
    }
)
"""JSON that says something of a set: written by ``datasets``, the hubs, and ``vlrft data``."""
NOT_READ = (".arrow", ".gz", ".pq", ".tar", ".tsv", ".zip", ".zst")
"""Endings of files that may hold rows, but are not read."""
SWIFT_COLUMNS = ("messages", "conversations", "conversation", "query", "response", "instruction")
"""Columns by which ms-swift's own loader knows its forms."""


def open_set(
    path: str | os.PathLike[str],
    *,
    split: str = "train",
    keep_going: bool = False,
    rename: Mapping[str, str] | None = None,
    root: str | os.PathLike[str] | None = None,
    task: str | None = None,
    box_format: str | None = None,
    boxes: str | None = None,
    unit: str | None = None,
) -> StoredSet:
    """Open the set at ``path``, whose columns make rows; DataError names missing columns.

    ``rename`` maps its columns to ours; relative image paths start from ``root`` (default:
    ms-swift's ROOT_IMAGE_DIR, else the set's own folder); ``task`` and ``box_format`` hold where a
    row's own columns state none; with ``keep_going`` a broken file becomes a BadRow; ``boxes`` and
    ``unit`` are those of ``state_boxes``.
    """
    stored = find_set(Path(path), split, keep_going=keep_going, rename=rename)
    check_columns(stored)
    stored.root, stored.task, stored.box_format = image_root(root), task, box_format
    state_boxes(stored, boxes, unit)
    return stored


def state_boxes(stored: StoredSet, boxes: str | None, unit: str | None) -> None:
    """Set what ``--boxes`` and ``--unit`` say of the set's boxes (None: nothing); a unit holds for
    boxes in ``solution`` where a row states none in its column frame. DataError for what the form
    of the set cannot have.
    """
    if boxes is None and unit is None:
        return
    reading = reading_named(boxes or "xyxy", unit or "pixels")
    schema = schema_of(stored.columns)
    if schema is not None and schema.numbers in stored.columns:
        if boxes is None:
            raise DataError(f"--unit {unit} needs --boxes, too: {', '.join(ORDERS)}")
        stored.reading = reading
    elif reading.boxes == "xyxy" and unit in BOX_FORMATS:
        stored.box_format = unit
    else:
        raise DataError(
            f"{stored.path}: boxes in the column solution are corners x1, y1, x2, y2, in pixels, "
            "unit or norm1000: give one of these as --unit, and no other --boxes. Multiply percent "
            "by 10 to get norm1000"
        )


def image_root(root: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the folder that images lie below: as given, else ms-swift's own variable."""
    folder = root if root is not None else os.environ.get("ROOT_IMAGE_DIR") or None
    return None if folder is None else Path(os.path.abspath(folder))


def find_set(
    path: Path,
    split: str = "train",
    *,
    keep_going: bool = False,
    rename: Mapping[str, str] | None = None,
) -> StoredSet:
    """Find the set at ``path``, whatever its columns are.

    DataError if it does not exist, is in no known format, has splits but not this one, or a file is
    broken.
    """
    refuse_missing(path)
    if (path / "dataset_dict.json").is_file():
        stored = _saved_dataset(_folder_in_dict(path, split), keep_going)
    elif (path / "state.json").is_file():
        stored = _saved_dataset(path, keep_going)
    else:
        stored = _of_files(path, split, keep_going)
    stored.rename, stored.root = dict(rename or {}), image_root()
    return stored


def refuse_missing(path: Path) -> None:
    """Raise DataError if the path does not exist; it says what to do if it is an id of a hub."""
    if path.exists():
        return
    text = f"{path} does not exist (from {Path.cwd()})"
    if len(path.parts) == 2 and not path.suffix and not path.parent.exists():
        text += (
            f"; if that is an id of Hugging Face, `hf download {path} --repo-type dataset "
            f"--local-dir {path.name}`, then give {path.name}"
        )
    raise DataError(text)


def local_set(path: Path, **options: Any) -> StoredSet | None:
    """Find the set at a path that a training names; None for a text file, which ms-swift reads.

    ``options`` are ``find_set``'s.
    """
    return None if path.suffix == ".txt" and path.is_file() else find_set(path, **options)


def is_ours(stored: StoredSet, rewards: Sequence[str]) -> bool:
    """Tell whether our readers, not ms-swift's, load a set in a run with these ``rewards``."""
    names = set(stored.columns)
    if not stored.files or stored.kind == "Arrow":  # ms-swift reads nothing of save_to_disk
        return True
    if is_for_swift(names, rewards):
        return False
    schema = schema_of(names)
    if schema is None:
        # Two of the three columns: meant for us, and the error names the missing one. Problems and
        # solutions alone are text, if no reward of ours reads the solutions.
        ours = "image" in names or not rewards or scores(rewards)
        return ours and "images" not in names and len(names & EXPLICIT) > 1
    if schema.name == "lisa" and "conversations" in names:
        # LISA's begin with <img>PATH</img>; other conversations are ms-swift's.
        first = next(stored.sample(["conversations"]), {})
        return "<img>" in str(first.get("conversations"))
    return True


def check_columns(stored: StoredSet) -> None:
    """Raise DataError if a set has no rows, lacks columns, or has two columns of one name."""
    columns = stored.columns
    names = [safe_name(name) for name in columns]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        from_columns = [n for n, name in zip(stored.names, names, strict=True) if name == twice[0]]
        raise DataError(
            f"{stored.path} has {len(from_columns)} columns for {twice[0]}: "
            f"{', '.join(from_columns)}. Leave one of them out"
            + (", or out of --columns" if stored.rename else "")
        )
    if isinstance(stored, JsonFiles) and not columns and not stored.broken:
        first = next((row for row in stored.records() if isinstance(row, BadRow)), None)
        files = listed(stored.files, Path())
        empty = f"{files} ha{'s' if len(stored.files) == 1 else 've'} no rows"
        raise DataError(str(first) if first else empty)
    if schema_of(columns) is not None or not (stored.files or columns):
        return
    missing = [name for name in ("image", "problem", "solution") if name not in columns]
    known = [name for name in SWIFT_COLUMNS if name in columns]
    others = ""
    if stored.kind == "Arrow":
        others = "; ms-swift itself reads nothing that save_to_disk wrote: write its own forms as "
        others += "Parquet or JSON Lines"
    elif known and (len(missing) > 1 or is_for_swift(columns)):
        others = (
            f", or leave it as it is: its column {known[0]} is of a form of ms-swift's own, which "
            "training reads without us, but which cannot be checked here"
        )
    name = "images" if missing[:1] == ["image"] and "images" in columns else "NAME"
    raise DataError(
        f"{stored.path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
        f"it has {', '.join(columns) or 'none'}. "
        f'Rename yours with --columns \'{{"{name}": "{missing[0]}"}}\'{others}'
    )


def splits_of(path: Path) -> list[str]:
    """Return the splits at ``path``, as its files name them; ["train"] where none are named."""
    if (path / "dataset_dict.json").is_file():
        try:
            return _names_in(path / "dataset_dict.json", "splits") or ["train"]
        except DataError:
            return ["train"]  # reading it says what is wrong
    files, _ = _row_files(path)
    if files == [path]:
        told = splits_in(path.stem)
        return told if len(told) == 1 else ["train"]
    return in_order(by_split(files, path).values()) or ["train"]


# ---- files and folders -----------------------------------------------------------------------


def _row_files(path: Path) -> tuple[list[Path], list[Path]]:
    """The files that hold rows, and the others in a format that is read: Parquet where there is
    any, else JSON and CSV in the folder itself, or else those below it whose names tell a split, as
    a folder of images may hold a JSON file for each.
    """
    if not path.is_dir():
        return [path] if path.suffix.lower() in OPENERS else [], []
    known = [file for file in walk(path) if file.name not in NO_ROWS]
    below = [file for file in known if file.suffix.lower() in OPENERS]
    parquet = [file for file in below if file.suffix.lower() == ".parquet"]
    here = [file for file in below if file.parent == path]
    files = parquet or here or [file for file in below if splits_told(file, path)]
    files = [file for file in files if file.suffix.lower() != ".csv"] or files
    data = [file for file in known if file.suffix.lower() in (*OPENERS, *NOT_READ)]
    return files, [file for file in data if file not in {*files}]


def _of_files(path: Path, split: str, keep_going: bool) -> StoredSet:
    files, other = _row_files(path)
    if not files:
        text = f"{path} holds no known data set: no {', '.join(OPENERS)}, no folder of save_to_disk"
        more = f". Of {listed(other, path)}, give the file of rows" if other else ""
        raise DataError(text + more)
    chosen, unnamed = (files, []) if files == [path] else files_of_split(files, path, split)
    ending = chosen[0].suffix.lower()
    series = {re.sub(r"\d+", "0", file.name) for file in chosen}
    if ending != ".parquet" and len(series) > 1 and not splits_told(chosen[0], path):
        raise DataError(
            f"{path} holds several files that may be the set: {listed(chosen, path)}. Give the "
            "file of rows, or put train, validation or test into the names"
        )
    stored = OPENERS[ending](path, chosen)
    stored.add_files(chosen, keep_going=keep_going)
    stored.unnamed, stored.other = unnamed, other
    return stored


def _json(path: Path, files: Sequence[Path]) -> StoredSet:
    """COCO's annotations, which are one file, or lists of rows."""
    if len(files) == 1 and not is_lines(files[0]):
        try:
            content = decoded(files[0])
        except FileError:  # reading it says what is wrong
            content = None
        if isinstance(content, dict) and {"images", "annotations", "categories"} <= content.keys():
            return CocoFile(files[0])
    return JsonFiles(path)


OPENERS: dict[str, Callable[[Path, Sequence[Path]], StoredSet]] = {
    ".parquet": lambda path, files: ColumnFiles(path, kind="Parquet"),
    ".jsonl": lambda path, files: JsonFiles(path),
    ".json": _json,
    ".csv": lambda path, files: JsonFiles(path),
}
"""What opens the files of a set, by the ending of their names."""


# ---- save_to_disk ----------------------------------------------------------------------------


def _names_in(file: Path, key: str) -> list[str]:
    """The files, or folders, that a file of ``save_to_disk`` lists; DataError for one outside."""
    try:
        entries = json.loads(file.read_text())[key]
        names = [entry["filename"] if key == "_data_files" else entry for entry in entries]
        for name in names:
            if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
                raise TypeError(f"{str(name)[:80]!r} is no name of a file in it")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is damaged ({error}); save it again") from error
    return names


def _folder_in_dict(path: Path, split: str) -> Path:
    """The folder of a DatasetDict's split: of its name, or of the same word (val is validation)."""
    names = _names_in(path / "dataset_dict.json", "splits")
    asked = WORDS.get(split, split)
    same = [split] if split in names else [n for n in names if WORDS.get(n.lower()) == asked]
    if len(same) != 1:
        raise DataError(
            f"{path} has {'no' if not same else 'more than one'} split {split!r}; it has "
            f"{', '.join(names)}"
        )
    return path / same[0]


def _saved_dataset(folder: Path, keep_going: bool) -> StoredSet:
    files = [folder / name for name in _names_in(folder / "state.json", "_data_files")]
    stored = ColumnFiles(folder, kind="Arrow")
    stored.add_files(files, keep_going=keep_going)
    there = sorted(folder.glob("*.arrow"))
    stored.other = [f for f in there if f not in files and not f.name.startswith("cache-")]
    return stored
