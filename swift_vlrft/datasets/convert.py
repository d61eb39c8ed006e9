"""Any set that ``read_rows`` reads becomes a Parquet folder that is ready for a hub.

    convert_folder(Path("lisa/train.json"), Path("data/lisa"), root=Path("lisa/images"))

Every picture is looked at on the way, and stored as it came; one that a camera turned, or of more
than 8 bits a colour, is stored upright in RGB, which is how its boxes were drawn. Every row is
asked what ``vlrft data check`` asks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.check import file_notes, left_out_reason
from swift_vlrft.datasets.forms import find_form, splits_of, unread_notes, unread_rows
from swift_vlrft.datasets.image import stored_image
from swift_vlrft.datasets.read import open_set, read_rows
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.row_check import row_problem
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import WORDS, listed
from swift_vlrft.datasets.writer import Item, LeftOut, Written, state_of, write_folder
from swift_vlrft.parsing.answers import gold_text


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
    notes: list[str] | None = None,
) -> Written:
    """What ``vlrft data convert`` does; all splits that are there unless ``splits`` names some.
    ``counts`` gets what makes no row though nothing is wrong with it, ``notes`` which files were
    not read.

    DataError names the file and the row that cannot be used; with ``keep_going`` such rows are
    left out and listed. It also names files that hold rows of no split, unless ``splits`` says
    which splits are wanted: a part is never taken for the whole.
    """
    if not source.exists():
        raise DataError(f"{source} does not exist (from {Path.cwd()})")
    wanted = _wanted_splits(source, splits, rename, notes)
    given = {"root": root, "rename": rename, "task": task, "keep_going": keep_going}

    def items(split: str, start: int) -> Iterator[Item]:
        base = Path(os.path.abspath(root or (source if source.is_dir() else source.parent)))
        form = open_set(source, split=split, keep_going=keep_going, rename=rename)
        found = read_rows(form, root=root, rename=rename, task=task, keep_going=True)
        for row in islice(found, start, None):
            item = _item(row, base)
            if isinstance(item, LeftOut) and not keep_going:
                place = "" if item.place in item.reason else f"{item.place}: "
                raise DataError(f"{place}{item.reason} (--keep-going leaves such rows out)")
            yield item
        if counts is not None:
            for reason, places in form.left_out.items():
                counts[f"times {left_out_reason(reason)}"] += len(places)

    options = sorted((name, str(value)) for name, value in given.items())
    return write_folder(
        folder,
        {name: partial(items, split) for split, name in wanted.items()},
        identity=f"convert {sorted(wanted.items())} {options} {state_of(source)}",
        notes=f"Made from `{source.name}` with `vlrft data convert`.",
        on_item=lambda n: progress(None, n),
    )


def _wanted_splits(
    source: Path,
    splits: Sequence[str],
    rename: Mapping[str, str] | None,
    notes: list[str] | None,
) -> dict[str, str]:
    """The splits to write, with the names that they get."""
    found = list(splits) or splits_of(source)
    form = find_form(source, found[0], keep_going=True)
    if form is not None:
        if (unread := unread_rows(form)) and not splits:
            raise DataError(
                f"{source}: {listed(unread, source)} would be left out:\n"
                + "\n".join(unread_notes(form))
                + "\nMove away what is no part of the set, or say with --split which splits "
                f"({', '.join(found)}) to convert"
            )
        if notes is not None:
            notes += file_notes(form, rename)
    names = {split: WORDS.get(split.lower(), split) for split in found}
    given = list(names.values())
    return {split: name if given.count(name) == 1 else split for split, name in names.items()}


def _item(row: Row | BadRow, base: Path) -> Item:
    if isinstance(row, BadRow):
        return LeftOut(str(row.place), row.problem.removeprefix(f"{row.place}: "))
    try:
        image, info = stored_image(row.image, base)
    except DataError as error:
        return LeftOut(str(row.place), str(error))
    if problem := row_problem(row, info):
        return LeftOut(str(row.place), problem)
    return written_row(row, image)


def written_row(row: Row, image: dict[str, Any]) -> dict[str, Any]:
    """The row as it is stored; a solution of numbers, lists or objects as the text that rewards
    read.
    """
    solution = row.solution if isinstance(row.solution, str) else gold_text(row.solution)
    return {**row.columns, "problem": row.problem, "solution": solution, "image": image}
