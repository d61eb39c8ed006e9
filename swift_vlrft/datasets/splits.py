"""The split of a file, by its name and its folders' names.

    train_0.parquet  train2017.json  TRAIN.parquet  training/0.parquet         train
    val2017.jsonl  dev.parquet  valid/0000.parquet                             validation
    testA.parquet  eval-00000-of-00002.parquet                                 test
    data-00000-of-00003.parquet  extra.parquet  pretrained.jsonl               none

The words are those of ``datasets`` (data_files.SPLIT_KEYWORDS), in either case. Its own patterns
would not do: they tell upper case apart, take train/val_0 for both splits, and say nothing of the
files that they leave. Here such files are left unread, and named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
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

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SHARD = re.compile(r"-\d{5}-of-\d{5}(-[0-9a-f]{16})?$")
"""The number of a shard; older sets of the hubs bear a checksum, too."""


def splits_in(name: str) -> list[str]:
    """The splits that a name speaks of, in its order: of refcoco_train_val train and validation."""
    found = (WORDS.get(word.lower()) for word in _WORD.findall(name))
    return list(dict.fromkeys(split for split in found if split))


def split_of(file: Path, root: Path) -> str | None:
    """The first split that a file's name speaks of, else the nearest folder's below ``root``; None
    where neither does, and where they contradict each other.
    """
    names = [file.stem, *(p.name for p in file.parents if root in p.parents)]
    by_name, *by_folder = [next(iter(splits_in(name)), None) for name in names]
    inside = next(filter(None, by_folder), None)
    return None if by_name and inside and by_name != inside else by_name or inside


def by_split(files: Sequence[Path], root: Path) -> dict[Path, str | None]:
    """The split of every file. Among others, data/extra-00000-of-00001.parquet is a split of its
    own, as it is to the hubs; where no name tells the files apart, all of them are None.
    """
    found = {file: split_of(file, root) for file in files}
    if any(found.values()):
        whole = _split_of_root(root)
        for file, split in found.items():
            if split is None and _SHARD.search(file.stem) and file.parent == root / "data":
                found[file] = _SHARD.sub("", file.stem)
            elif split is None and not splits_in(file.stem):
                found[file] = whole
    return found


def folders_of_sets(files: Sequence[Path], root: Path) -> list[Path]:
    """The folders below ``root`` that ``files`` lie in, down to the first that is named for a
    split: of main/train/0.parquet and socratic/train-1.parquet main and socratic.
    """
    found: set[Path] = set()
    for file in files:
        folders = [p for p in reversed(file.parents) if root in p.parents]
        found |= set(list(takewhile(lambda folder: not splits_in(folder.name), folders))[-1:])
    return sorted(found)


def names_of_splits(files: Sequence[Path], root: Path) -> list[str]:
    """The splits that are there; where no file names one, the root's own, or none."""
    found = {split for split in by_split(files, root).values() if split}
    if not found:
        return [whole] if (whole := _split_of_root(root)) else []
    return [*(s for s in SPLITS if s in found), *sorted(found - set(SPLITS))]


def files_of_split(
    files: Sequence[Path], root: Path, split: str, kind: str
) -> tuple[list[Path], list[Path]]:
    """The files of ``split``, and those that are of no split though others are.

    ``split`` is one of SPLITS, or a name as files or folders bear it. All files where no name tells
    them apart. DataError if there are splits, but not this one.
    """
    if split not in SPLITS:  # a file's name without the number of its shard, or a folder's
        named = [
            file
            for file in files
            if split == _SHARD.sub("", file.stem)
            or any(split == p.name for p in file.parents if root in p.parents)
        ]
        if named:
            return named, []
    found = by_split(files, root)
    if not any(found.values()):
        return list(files), []
    asked = next(iter(splits_in(split)), split)
    unnamed = [file for file, name in found.items() if name is None]
    chosen = [file for file, name in found.items() if name == asked]
    if not chosen and asked != "train":  # by the second word of a name: val of refcoco_train_val
        chosen = [file for file in files if asked in splits_in(file.stem)]
    if not chosen:
        known = sorted({name for name in found.values() if name})
        raise DataError(
            f"{root}: no split {split!r} among its {kind} files; it has {', '.join(known)}"
            + (f", and of no split {listed(unnamed, root)}" if unnamed else "")
        )
    return chosen, unnamed


def walk(folder: Path) -> list[Path]:
    """The files below a folder, links followed, in order. Hidden ones are left out (caches and what
    is half written), and, as ``datasets`` does, folders like __MACOSX and __pycache__.
    """
    found: list[Path] = []
    for path, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        above = {os.path.realpath(str(p)) for p in (path, *Path(path).parents)}
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__"))
            and os.path.realpath(os.path.join(path, name)) not in above  # it links to itself
        ]
        found += [Path(path, name) for name in files if not name.startswith(".")]
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def listed(files: Sequence[Path], root: Path) -> str:
    """Files for a message, by their paths below ``root``."""
    names = [str(f.relative_to(root)) if root in f.parents else str(f) for f in files]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _split_of_root(root: Path) -> str | None:
    """Whether a folder's name is a split, as train2017 or val; my_val_set may hold anything."""
    words = _WORD.findall(os.path.basename(os.path.abspath(root)).partition(".")[0])
    return next(iter(splits_in(words[0])), None) if len(words) == 1 else None
