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
    names = [file.stem, *(folder.name for folder in file.parents if root in folder.parents)]
    return {split for name in names for split in splits_in(name)}


def by_split(files: Sequence[Path], root: Path) -> dict[Path, str | None]:
    """Return the split of every file. None for a file that tells none, and for all where none does.
    DataError where a file tells several.
    """
    split_of: dict[Path, str | None] = {}
    for file in files:
        shard = SHARD.fullmatch(file.stem) if file.parent == root / "data" else None
        told = {WORDS.get(shard[1].lower(), shard[1])} if shard else splits_told(file, root)
        if len(told) > 1:
            raise DataError(
                f"{root}: the split of {listed([file], root)} is unclear, as the names of the file "
                f"and its folders tell {' and '.join(sorted(told))}; rename it, or give it itself"
            )
        split_of[file] = next(iter(told), None)
    if not any(split and splits_in(split) for split in split_of.values()):
        return dict.fromkeys(files)
    return split_of


def in_order(splits: Iterable[str | None]) -> list[str]:
    """Return each split once: train, validation, test, then the others."""
    unique = sorted({split for split in splits if split})
    return sorted(unique, key=lambda split: (*SPLITS, split).index(split))


def walk(folder: Path) -> list[Path]:
    """Return the files below a folder, in order. Hidden files are left out (caches, files half
    written), and, as ``datasets`` does, folders like __MACOSX and __pycache__.
    """
    below: list[Path] = []
    for path, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        below += [Path(path, name) for name in files if not name.startswith(".")]
    return sorted(below)


def _raise(error: OSError) -> None:
    raise error


def listed(files: Sequence[Path], root: Path) -> str:
    """List files for a message, by their paths below ``root``."""
    names = [str(f.relative_to(root)) if root in f.parents else str(f) for f in files]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
