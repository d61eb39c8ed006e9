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

from swift_vlrft.datasets.check import Report, Validated, check_rows
from swift_vlrft.datasets.image import stored_image
from swift_vlrft.datasets.opening import open_set, splits_of
from swift_vlrft.datasets.row import BadRow, Kind, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import listed
from swift_vlrft.datasets.storage import file_notes, left_out_notes, unread_rows
from swift_vlrft.datasets.validate import RowRules
from swift_vlrft.datasets.writer import Item, Written, write_folder
from swift_vlrft.parsing.answers import gold_text


def convert_folder(
    source: Path,
    folder: Path,
    *,
    splits: Sequence[str] = (),
    root: Path | None = None,
    ask: str = "",
    keep_going: bool = False,
    **options: Any,
) -> Written:
    """Do what ``vlrft data convert`` does, for all splits unless ``splits`` names some. Prompts
    end with ``ask``. ``counts`` of the result are rows that were not made though nothing is wrong
    with them, ``notes`` say which files were not read. Further ``options`` are ``open_set``'s.

    DataError names the file and the row that cannot be used; with ``keep_going`` such rows are
    left out and listed. It also names files that hold rows of no split, unless ``splits`` says
    which splits are meant: a part is never taken for the whole.
    """
    wanted = list(splits) or splits_of(source)
    opened = {split: open_set(source, split=split, root=root, **options) for split in wanted}
    first = opened[wanted[0]]
    if not splits and (unread := unread_rows(first)):
        raise DataError(
            f"{source}: {listed(unread, source)} would be left out:\n"
            + "\n".join(file_notes(first))
            + "\nMove away what is no part of the set, or say with --split which splits "
            f"({', '.join(wanted)}) to convert"
        )
    base = image_base(source, root)

    reports = {split: Report(source) for split in wanted}

    def items(split: str) -> Iterator[Item]:
        rules = RowRules(box_format="", every_reward=True)
        checked = check_rows(opened[split], rules, reports[split])
        for item in _items(checked, base):
            if ask and isinstance(item, dict):
                item["problem"] += f"\n{ask}"
            yield item

    written = write_folder(folder, {split: items(split) for split in wanted}, keep_going=keep_going)
    written.notes = file_notes(first) + [n for r in reports.values() for n in r.mixed_notes()]
    for form in opened.values():
        written.notes += left_out_notes(form, places=False)
        for reason, places in form.left_out.items():
            written.counts[f"times {reason}"] += len(places)
    return written


def image_base(source: Path, root: Path | None) -> Path:
    """Return the folder that stored image paths are relative to."""
    return Path(os.path.abspath(root or (source if source.is_dir() else source.parent)))


def _items(rows: Iterable[Validated], base: Path) -> Iterator[Item]:
    """Yield what is written of every row, or its problem; its image's path is below ``base``."""
    for checked in rows:
        row, size, problem = checked.row, checked.size, checked.problem
        if problem is not None and problem.kind is Kind.SET:
            raise DataError(str(problem))
        if isinstance(row, Row) and size is not None and problem is None:
            try:
                image, _ = stored_image(row.image, base, size)
                yield written_row(row, image)
                continue
            except ValueError as error:
                problem = BadRow(row.place, str(error))
        if problem is not None:
            yield problem


def written_row(row: Row, image: dict[str, Any]) -> dict[str, Any]:
    """Return the row as it is stored. A solution of numbers, lists or objects becomes the text
    that rewards read.
    """
    solution = row.solution if isinstance(row.solution, str) else gold_text(row.solution)
    return {**row.columns, "problem": row.problem, "solution": solution, "image": image}
