"""The split of a file is the split word in its name, or in its folders' names.

    train_0.parquet  train2017.json  TRAIN.parquet  training/0.parquet         train
    val2017.jsonl  dev.parquet  valid/0000.parquet                             validation
    testA.parquet  eval_0.parquet                                              test
    data/train_more-00000-of-00002.parquet                                     train_more
    data-00000-of-00003.parquet  extra.parquet  pretrained.jsonl               none
    train_val.jsonl  train/val_0.parquet                                       refused

The words are those of ``datasets`` (data_files.SPLIT_KEYWORDS), in either case, and shards in
``data`` are of the split that they name, as on the hubs. The patterns of ``datasets`` would not do:
they take train/val_0 for both splits, and say nothing of the files that they leave.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from swift_vlrft.datasets.source import DataError

WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
SPLITS = ("train", "validation", "test")
MAX_NAMED = 10
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?")
"""The stem of a shard's name; older sets of the hubs bear a checksum, too."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def splits_in(name: str) -> list[str]:
    """Return the splits that a name tells, in order: refcoco_train_val is train and validation."""
    splits = (WORDS.get(word.lower()) for word in _WORD.findall(name))
    return list(dict.fromkeys(split for split in splits if split))


def splits_told(file: Path, root: Path) -> set[str]:
    """Return the splits that a file's name, and its folders' names below ``root``, tell."""
    names = [file.stem, *(folder.name for folder in _folders(file, root))]
    return {split for name in names for split in splits_in(name)}


def by_split(files: Sequence[Path], root: Path) -> dict[Path, str | None]:
    """Return the split of every file. None for a file that tells none, and for all where none does.
    DataError where a file tells several, and where the files lie in folders of several sets.
    """
    split_of: dict[Path, str | None] = {}
    torn = []
    for file in files:
        shard = SHARD.fullmatch(file.stem) if file.parent == root / "data" else None
        told = {WORDS.get(shard[1].lower(), shard[1])} if shard else splits_told(file, root)
        torn += [file] if len(told) > 1 else []
        split_of[file] = next(iter(told), None)
    if torn:
        raise DataError(
            f"{root}: the split of {listed(torn, root)} is unclear, as the names of a file and its "
            "folders tell several; rename it, or give such a file itself"
        )
    apart = sorted({_folder_of_set(file, root) for file in files})
    if len(apart) > 1:
        raise DataError(
            f"{root} holds files of several sets, in {listed(apart, root)}. Give one or "
            "several of these folders, or the file to read"
        )
    if not any(split and splits_in(split) for split in split_of.values()):
        return dict.fromkeys(files)
    return split_of


def files_of_split(files: Sequence[Path], root: Path, split: str) -> tuple[list[Path], list[Path]]:
    """Return the files of ``split``, and those that are of no split though others are. Return all
    files where no name tells them apart. DataError if there are splits, but not this one.
    """
    split_of = by_split(files, root)
    if not any(split_of.values()):
        return list(files), []
    asked = WORDS.get(split.lower(), split)
    chosen = [file for file, name in split_of.items() if name == asked]
    unnamed = [file for file, name in split_of.items() if name is None]
    if not chosen:
        raise DataError(
            f"{root} has no split {split!r}; it has {', '.join(in_order(split_of.values()))}"
            + (
                f", and files of no split, to be named alone: {listed(unnamed, root)}"
                if unnamed
                else ""
            )
        )
    return chosen, unnamed


def in_order(splits: Iterable[str | None]) -> list[str]:
    """Return each split once: train, validation, test, then the others."""
    unique = sorted({split for split in splits if split})
    return sorted(unique, key=lambda split: (*SPLITS, split).index(split))


def _folders(file: Path, root: Path) -> list[Path]:
    """The folders below ``root`` that the file lies in."""
    return [folder for folder in reversed(file.parents) if root in folder.parents]


def _folder_of_set(file: Path, root: Path) -> Path:
    """The last folder above a split's: main of main/train/0.parquet and main/0.parquet."""
    named = takewhile(lambda folder: not splits_in(folder.name), _folders(file, root))
    return [root, *named][-1]


def walk(folder: Path) -> list[Path]:
    """Return the files below a folder, links followed, in order. Hidden files are left out (caches,
    files half written), and, as ``datasets`` does, folders like __MACOSX and __pycache__.
    """
    below: list[Path] = []
    for path, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        above = {os.path.realpath(str(p)) for p in (path, *Path(path).parents)}
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__"))
            and os.path.realpath(os.path.join(path, name)) not in above  # it links to itself
        ]
        below += [Path(path, name) for name in files if not name.startswith(".")]
    return sorted(below)


def _raise(error: OSError) -> None:
    raise error


def listed(files: Sequence[Path], root: Path) -> str:
    """List files for a message, by their paths below ``root``."""
    names = [str(f.relative_to(root)) if root in f.parents else str(f) for f in files]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
