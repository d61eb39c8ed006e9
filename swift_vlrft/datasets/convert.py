"""Any set that ``read_rows`` reads becomes a Parquet folder that is ready for a hub.

    convert_folder(Path("lisa/train.json"), Path("data/lisa"), root=Path("lisa/images"))

Every picture is looked at on the way, and stored as it came; one that a camera turned, or of more
than 8 bits a colour, is stored upright in RGB, which is how its boxes were drawn. Every row is
asked what ``vlrft data check`` asks.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from swift_vlrft.answers import gold_text
from swift_vlrft.datasets.check import row_problem
from swift_vlrft.datasets.forms import SPLITS, split_of_json
from swift_vlrft.datasets.image import stored_image
from swift_vlrft.datasets.parquet import split_names
from swift_vlrft.datasets.read import open_set, read_rows
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.writer import Item, LeftOut, Written, state_of, write_folder


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
    counts: Counter[str] | None = None,
) -> Written:
    """What ``vlrft data convert`` does; all splits that are there unless ``splits`` names some.
    ``counts`` gets what makes no row though nothing is wrong with it.

    DataError names the file and the row that cannot be used; with ``keep_going`` such rows are
    left out and listed.
    """
    if not source.exists():
        raise DataError(f"{source} does not exist (from {Path.cwd()})")
    wanted = {split: SPLITS.get(split, split) for split in splits or splits_of(source)}
    given = {"root": root, "rename": rename, "task": task, "keep_going": keep_going}

    def items(split: str, start: int) -> Iterator[Item]:
        base = Path(os.path.abspath(root or (source if source.is_dir() else source.parent)))
        form = open_set(source, split=split, keep_going=keep_going, rename=rename)
        found = read_rows(form, root=root, rename=rename, task=task, keep_going=keep_going)
        for row in islice(found, start, None):
            item = _item(row, base)
            if isinstance(item, LeftOut) and not keep_going:
                raise DataError(f"{item.place}: {item.reason} (--keep-going leaves such rows out)")
            yield item
        if counts is not None:
            for reason, places in form.left_out.items():
                counts[f"times a category of an image makes no row: {reason}"] += len(places)

    options = sorted((name, str(value)) for name, value in given.items())
    return write_folder(
        folder,
        {name: partial(items, split) for split, name in wanted.items()},
        identity=f"convert {sorted(wanted.items())} {options} {state_of(source)}",
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
    named = {split_of_json(file) for file in files}
    return [split for split in SPLITS if split in named] or ["train"]


def _item(row: Row | BadRow, base: Path) -> Item:
    if isinstance(row, BadRow):
        return LeftOut(str(row.place), row.problem.removeprefix(f"{row.place}: "))
    try:
        image, head = stored_image(row.image, base)
    except DataError as error:
        return LeftOut(str(row.place), str(error))
    if problem := row_problem(row, head):
        return LeftOut(str(row.place), problem)
    return written_row(row, image)


def written_row(row: Row, image: dict[str, Any]) -> dict[str, Any]:
    """The row as it is stored; a solution of numbers, lists or objects as the text that rewards
    read.
    """
    solution = row.solution if isinstance(row.solution, str) else gold_text(row.solution)
    return {**row.columns, "problem": row.problem, "solution": solution, "image": image}
