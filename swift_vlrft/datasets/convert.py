"""Any set that ``read_rows`` reads becomes a Parquet folder that is ready for a hub.

    convert_folder(Path("lisa/train.json"), Path("data/lisa"), root=Path("lisa/images"))

Every image is opened on the way, and stored as it came; one that a camera turned, or of more than 8
bits a colour, is stored upright in RGB, which is how its boxes were drawn. Every row passes the
checks of ``vlrft data check``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.check import GoodRow, Report, check_rows
from swift_vlrft.datasets.image import stored_image
from swift_vlrft.datasets.opening import open_set, splits_of
from swift_vlrft.datasets.row import BadRow, Kind, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import listed, splits_told
from swift_vlrft.datasets.storage import file_notes
from swift_vlrft.datasets.validate import RowRules
from swift_vlrft.datasets.writer import Item, Written, write_folder
from swift_vlrft.parsing.answers import gold_text


def convert_folder(
    source: Path,
    folder: Path,
    *,
    splits: Sequence[str] = (),
    ask: str = "",
    keep_going: bool = False,
    **options: Any,
) -> Written:
    """Do what ``vlrft data convert`` does, for all splits unless ``splits`` names some. Prompts
    end with ``ask``. ``notes`` of the result are those of ``vlrft data check``. Further ``options``
    are ``open_set``'s.

    DataError names the file and the row that cannot be used; with ``keep_going`` such rows are
    left out and listed. It also names files that hold rows of no split, unless ``splits`` says
    which splits are meant: a part is never taken for the whole.
    """
    wanted = list(splits) or splits_of(source)
    opened = {split: open_set(source, split=split, **options) for split in wanted}
    first = opened[wanted[0]]
    unread = [file for file in first.other if splits_told(file, first.path)]
    if unread and not splits:
        raise DataError(
            f"{source}: {listed(unread, source)} would be left out:\n"
            + "\n".join(file_notes(first))
            + "\nMove away what is no part of the set, or say with --split which splits "
            f"({', '.join(wanted)}) to convert"
        )
    base, end = Path(os.path.abspath(first.root or first.folder)), f"\n{ask}" if ask else ""
    reports = {split: Report(source) for split in wanted}
    rules = RowRules(box_format="", every_reward=True)
    items = {
        split: _items(check_rows(stored, rules, reports[split]), base, end)
        for split, stored in opened.items()
    }
    written = write_folder(folder, items, keep_going=keep_going)
    written.notes = [*dict.fromkeys(note for of in reports.values() for note in of.notes)]
    return written


def _items(rows: Iterable[GoodRow | BadRow], base: Path, end: str) -> Iterator[Item]:
    """Yield what is written of every row, or its problem; its image's path is below ``base``, and
    ``end`` that of its prompt.
    """
    for one in rows:
        if isinstance(one, BadRow):
            if one.kind is Kind.SET:
                raise DataError(str(one))
            yield one
            continue
        assert one.size is not None
        try:
            image = stored_image(one.row.image, base, one.size)
            yield written_row(one.row, image) | {"problem": one.row.problem + end}
        except ValueError as error:
            yield BadRow(one.row.place, str(error))


def written_row(row: Row, image: dict[str, Any]) -> dict[str, Any]:
    """Return the row as it is stored. A solution of numbers, lists or objects becomes the text
    that rewards read.
    """
    solution = row.solution if isinstance(row.solution, str) else gold_text(row.solution)
    return {**row.columns, "problem": row.problem, "solution": solution, "image": image}
