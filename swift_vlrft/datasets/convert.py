"""Any set that ``read_rows`` reads becomes a Parquet folder that is ready for a hub.

    convert_folder(Path("lisa/train.json"), Path("data/lisa"), root=Path("lisa/images"))

Every picture is opened on the way, and stored as it came; one that a camera turned, or of more
than 8 bits a colour, is stored upright in RGB, which is how its boxes were drawn. The prompt and
the solution of every row are read as the rewards will read them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path

from swift_vlrft.datasets.check import row_problem
from swift_vlrft.datasets.image import stored_image
from swift_vlrft.datasets.parquet import split_names
from swift_vlrft.datasets.read import read_rows
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.writer import Item, LeftOut, Written, write_folder

SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
"""Splits as files name them, and as the hubs do."""


def convert_folder(
    source: Path,
    folder: Path,
    *,
    splits: Sequence[str] = (),
    root: Path | None = None,
    rename: Mapping[str, str] | None = None,
    task: str | None = None,
    keep_going: bool = False,
    progress: Callable[[int | None, int], None] = lambda total, n: None,
) -> Written:
    """What ``vlrft data convert`` does; all splits that are there unless ``splits`` names some.

    DataError names the file and the row that cannot be used; with ``keep_going`` such rows are
    left out and listed.
    """
    if not source.exists():
        raise DataError(f"{source} does not exist (from {Path.cwd()})")
    wanted = {split: SPLITS.get(split, split) for split in splits or splits_of(source)}
    given = {"root": root, "rename": rename, "task": task, "keep_going": keep_going}

    def items(split: str, start: int) -> Iterator[Item]:
        base = Path(os.path.abspath(root or (source if source.is_dir() else source.parent)))
        found = read_rows(
            source, split=split, root=root, rename=rename, task=task, keep_going=keep_going
        )
        for row in islice(found, start, None):
            item = _item(row, base)
            if isinstance(item, LeftOut) and not keep_going:
                raise DataError(f"{item.place}: {item.reason} (--keep-going leaves such rows out)")
            yield item

    options = sorted((name, str(value)) for name, value in given.items())
    return write_folder(
        folder,
        {name: partial(items, split) for split, name in wanted.items()},
        identity=f"convert {sorted(wanted.items())} {options} {_state_of(source)}",
        notes=f"Made from `{source.name}` with `vlrft data convert`.",
        on_item=lambda n: progress(None, n),
    )


def splits_of(source: Path) -> list[str]:
    """The splits that lie at ``source``, as its files name them; ["train"] where none are named."""
    if (source / "dataset_dict.json").is_file():
        try:
            return list(json.loads((source / "dataset_dict.json").read_text())["splits"])
        except (OSError, ValueError, KeyError, TypeError):
            return ["train"]  # reading it says what is wrong
    if found := split_names(source):
        return found
    files = [*source.glob("*.json*")] if source.is_dir() else [source]
    words = {word for file in files for word in file.stem.replace("_", "-").split("-")}
    return [split for split in SPLITS if split in words] or ["train"]


def _item(row: Row | BadRow, base: Path) -> Item:
    if isinstance(row, BadRow):
        return LeftOut(str(row.place), row.problem.removeprefix(f"{row.place}: "))
    texts = {"problem": row.problem, "solution": row.solution}
    problem = row_problem(row)
    if problem:
        return LeftOut(str(row.place), problem)
    try:
        image = stored_image(row.image, base)
    except DataError as error:
        return LeftOut(str(row.place), str(error))
    return {**row.columns, **texts, "image": image}


def _state_of(source: Path) -> str:
    """A digest of what lies at ``source``: names, sizes and times of its files."""
    files = sorted(source.rglob("*")) if source.is_dir() else [source]
    digest = sha256(str(source.resolve()).encode())
    for file in files:
        if file.is_file():
            stat = file.stat()
            digest.update(f"{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
