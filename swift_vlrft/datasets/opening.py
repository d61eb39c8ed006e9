"""Find the set at a path by the ending of its name, or by what its folder holds.

folder/data.yaml                              YOLO's pictures and labels
folder/dataset_dict.json, folder/state.json   ``save_to_disk`` of a DatasetDict or a Dataset
folder/train-00000-of-00002.parquet           Parquet, with splits and shards
rows.jsonl, rows.json                         JSON with image paths
instances_train2017.json                      COCO's annotations

A folder is of one kind: Parquet, whatever lies beside it, or else JSON. Where it holds several
sets, the file to read has to be named.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.coco import CocoFile
from swift_vlrft.datasets.column_files import ColumnFiles, saved_dataset
from swift_vlrft.datasets.instances import decoded
from swift_vlrft.datasets.json_files import JsonFiles, is_lines
from swift_vlrft.datasets.row import BadRow, safe_name
from swift_vlrft.datasets.schema import EXPLICIT
from swift_vlrft.datasets.schemas import is_for_swift, schema_of, scores
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import (
    WORDS,
    by_split,
    in_order,
    listed,
    splits_in,
    splits_told,
    walk,
)
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.yolo import CONFIG, folders_of_yolo, open_yolo
from swift_vlrft.geometry.box_format import BOX_FORMATS
from swift_vlrft.geometry.readings import ORDERS, reading_named

NO_ROWS = frozenset(
    ("config.json", "dataset_info.json", "dataset_infos.json", "state.json", "left_out.jsonl")
)
"""JSON that says something of a set: written by ``datasets``, the hubs, and ``vlrft data``."""
READ = (".parquet", ".jsonl", ".json")
NOT_READ = (".arrow", ".csv", ".gz", ".pq", ".tar", ".tsv", ".zip", ".zst")
"""Endings of files that may hold rows, but are not read."""
A_ROW_A_LINE = "write a row a line, as datasets.Dataset.from_csv(FILE).to_json('NEW.jsonl') does"
SWIFT_COLUMNS = ("messages", "conversations", "conversation", "query", "response", "instruction")
"""Columns by which ms-swift's own loader knows its forms."""


def open_set(
    path: str | os.PathLike[str],
    *,
    split: str = "train",
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
    row's own columns state none; ``boxes`` and ``unit`` are those of ``state_boxes``.
    """
    stored = find_set(Path(path), split, rename=rename)
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
    path: Path, split: str = "train", *, rename: Mapping[str, str] | None = None
) -> StoredSet:
    """Find the set at ``path``, whatever its columns are. DataError if it does not exist, is in no
    known format, has splits but not this one, or a file is broken.
    """
    parts = _parts(path)
    words = {name: WORDS.get(name.lower(), name) for name in parts if name}
    asked = WORDS.get(split.lower(), split)
    same = [split] if split in words else [name for name, word in words.items() if word == asked]
    if len(same) != 1 and (words or not parts):
        there = ", ".join(in_order(parts))
        count = "more than one" if same else "no"
        raise DataError(f"{path} has {count} split {split!r}; it has {there}")
    stored = parts[same[0] if same else None]()
    stored.rename, stored.root = dict(rename or {}), image_root()
    return stored


def local_set(path: Path, **options: Any) -> StoredSet | None:
    """Find the set at a path that a training names; None for a file of text or CSV, which ms-swift
    reads. ``options`` are ``find_set``'s. DataError for CSV with a column solution.
    """
    if path.suffix not in (".txt", ".csv") or not path.is_file():
        return find_set(path, **options)
    with open(path, encoding="utf-8", errors="replace") as lines:
        if path.suffix == ".csv" and "solution" in lines.readline():
            raise DataError(f"{path}: CSV with solutions is not read; {A_ROW_A_LINE}")
    return None


def is_ours(stored: StoredSet, rewards: Sequence[str]) -> bool:
    """Tell whether our readers, not ms-swift's, load a set in a run with these ``rewards``."""
    names = set(stored.columns)
    # Of save_to_disk ms-swift reads nothing, and where no record was read, an error is due.
    if not stored.files or not names or stored.kind == "Arrow":
        return True
    if is_for_swift(names, rewards):
        return False
    if schema_of(names) is not None:
        return True
    # Two of the three columns: meant for us, and the error names the missing one. Problems and
    # solutions alone are text, if no reward of ours reads the solutions.
    ours = "image" in names or not rewards or scores(rewards)
    return ours and "images" not in names and len(names & EXPLICIT) > 1


def check_columns(stored: StoredSet) -> None:
    """Raise DataError if a set has no rows, lacks columns, or has two columns of one name."""
    columns = stored.columns
    names = [safe_name(name) for name in columns]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        both = [n for n, name in zip(stored.names, names, strict=True) if name == twice[0]]
        text = f"{stored.path} has {len(both)} columns for {twice[0]}: {', '.join(both)}"
        raise DataError(f"{text}. Leave one of them out, or out of --columns")
    if isinstance(stored, JsonFiles) and not columns:
        first = next((row for row in stored.records() if isinstance(row, BadRow)), None)
        raise DataError(str(first or f"{listed(stored.files, Path())} has no rows"))
    if schema_of(columns) is not None or not (stored.files or columns):
        return
    if videos := {"video", "videos"} & set(columns):
        raise DataError(
            f"{stored.path} has {', '.join(videos)}: a row of a video has videos, problem and "
            "solution, its spans in seconds"
        )
    missing = [name for name in ("image", "problem", "solution") if name not in columns]
    known = [name for name in SWIFT_COLUMNS if name in columns]
    others = ""
    if known and (len(missing) > 1 or is_for_swift(columns)):
        others = f". Rows with {known[0]} are ms-swift's own form: it reads them in Parquet "
        others += "or JSON Lines, unchecked here"
    name = "images" if missing[:1] == ["image"] and "images" in columns else "NAME"
    raise DataError(
        f"{stored.path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
        f"it has {', '.join(columns) or 'none'}. Rename yours: `vlrft data convert "
        f'{stored.path} NEW --columns \'{{"{name}": "{missing[0]}"}}\'`, or --columns of a '
        f"training and of `vlrft data check`{others}"
    )


def splits_of(path: Path) -> list[str]:
    """Return the splits at ``path``, as its files name them; ["train"] where none are named."""
    told = splits_in(path.stem) if path.is_file() else []
    return in_order(_parts(path)) or (told if len(told) == 1 else ["train"])


# ---- files and folders -----------------------------------------------------------------------


def _parts(path: Path) -> dict[str | None, Callable[[], StoredSet]]:
    """What opens the set at a path, by split; None: what is of no split."""
    if not path.exists():
        raise DataError(
            f"{path} does not exist (from {Path.cwd()}); `hf download ID --repo-type dataset "
            "--local-dir DIR` fetches a set of Hugging Face"
        )
    config = path if path.suffix.lower() in (".yaml", ".yml") else path / CONFIG
    text = config.read_text("utf-8", "replace") if config != path and config.is_file() else ""
    if config == path or "\nnames:" in f"\n{text}":  # others than YOLO's name no classes
        if config != path and (rows := sorted(path.glob("*.parquet"))):
            raise DataError(f"{path} holds {CONFIG} and {rows[0].name}: give the one that is meant")
        pictures = folders_of_yolo(config)
        return {split: partial(open_yolo, config, folder) for split, folder in pictures.items()}
    if (path / "state.json").is_file():
        return {None: partial(saved_dataset, path)}
    if (path / "dataset_dict.json").is_file():
        folders = [file.parent for file in sorted(path.glob("*/state.json"))]
        return {folder.name: partial(saved_dataset, folder) for folder in folders}
    files, other = _row_files(path)
    split_of = by_split(files, path) if path.is_dir() else dict.fromkeys(files)
    parts: dict[str | None, list[Path]] = {}
    for file in files:
        parts.setdefault(split_of[file], []).append(file)
    if len(parts) > 1 and None in parts:
        raise DataError(
            f"{path}: {listed(parts[None], path)} tell no split by their names, but others do: put "
            "train, validation or test into the names, move them away, or give one file itself"
        )
    return {split: partial(_of_files, path, chosen, other) for split, chosen in parts.items()}


def _row_files(path: Path) -> tuple[list[Path], list[Path]]:
    """The files that hold rows, and the others that may: Parquet where there is any, else JSON in
    the folder itself, as a folder of images may hold a JSON file for each.
    """
    known = [path] if path.is_file() else [f for f in walk(path) if f.name not in NO_ROWS]
    data = [file for file in known if file.suffix.lower() in (*READ, *NOT_READ)]
    files = [file for file in data if file.suffix.lower() == ".parquet"]
    here = [file for file in data if path in (file, file.parent)]
    files = files or [file for file in here if file.suffix.lower() in READ]
    others = [file for file in data if file not in {*files}]
    if not files:
        kinds = f"no {', '.join(READ)}, no save_to_disk, no {CONFIG} of a YOLO folder"
        below = [file for file in others if file.suffix.lower() in READ]
        do = f"give the one that holds rows: {listed(below, path)}" if below else A_ROW_A_LINE
        raise DataError(f"{path} holds no known data set: {kinds}; {do}")
    return files, others


def _of_files(path: Path, files: list[Path], other: list[Path]) -> StoredSet:
    """The set in the files of a split."""
    ending = files[0].suffix.lower()
    told = splits_told(files[0], path) and len({file.suffix for file in files}) == 1
    series = {re.sub(r"\d+", "0", file.name) for file in files}
    folders = {str(file.parent) for file in files}
    if len(folders) > 1 or (ending != ".parquet" and len(series) > 1 and not told):
        raise DataError(
            f"{path} holds several files that may be the set: {listed(files, path)}. Give the "
            "file of rows, or one of their folders, or put train, validation or test into the names"
        )
    stored = _empty(path, files)
    for file in files:
        stored.add(file)
    stored.other = other
    return stored


def _empty(path: Path, files: Sequence[Path]) -> StoredSet:
    """The set before its files are added; a single JSON file may hold COCO's annotations."""
    ending = files[0].suffix.lower()
    if ending == ".parquet":
        return ColumnFiles(path)
    if ending == ".json" and len(files) == 1 and not is_lines(files[0]):
        content = decoded(files[0])
        if isinstance(content, dict) and {"images", "annotations", "categories"} <= content.keys():
            return CocoFile(files[0])
    return JsonFiles(path)
