"""Check whether each row of a set is fit to train on, before training and in ``vlrft data check``:
validate.py judges a row, report.py collects the verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.box_format import ImageResize
from swift_vlrft.datasets.image import ImageInfo, ImageInfoReader
from swift_vlrft.datasets.instances import NOT_IN_FULL, UNSURE
from swift_vlrft.datasets.opening import open_set, splits_of
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.report import MAX_SHOWN, Report
from swift_vlrft.datasets.reserved_columns import reserved_notes
from swift_vlrft.datasets.routing import tasks_of_row
from swift_vlrft.datasets.row import BadRow, Kind, Row
from swift_vlrft.datasets.splits import SHARD, listed, splits_told
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.validate import (
    RowRules,
    TooLong,
    Validated,
    fitting_tasks,
    in_box_format,
    validate_rows,
)
from swift_vlrft.parsing.answers import gold_text, read_boxes


def check_set(
    path: Path | StoredSet,
    *,
    images: bool = True,
    rewards: Sequence[str] = (),
    tasks: Sequence[str] = (),
    **options: Any,
) -> Report:
    """Check every row, or those of ``tasks``, with ``images`` also its image. ``options`` are
    ``open_set``'s. DataError only for a set that cannot be used at all.
    """
    stored = open_set(path, keep_going=True, **options) if isinstance(path, Path) else path
    report = Report(stored.path)
    rules = RowRules(rewards=tuple(rewards), every_reward=images, tasks=tuple(tasks))
    for _ in check_rows(stored, rules, report, images=images):
        pass
    return report


def check_splits(
    path: Path, rules: RowRules, split: str | None = None, **options: Any
) -> dict[str, tuple[Iterator[Validated], Report]]:
    """Return, for every split or the one named, its rows, checked as they are read, and the report
    on them, complete when all were read. ``options`` are ``open_set``'s.
    """
    checked = {}
    for name in [split] if split else splits_of(path):
        stored = open_set(path, split=name, keep_going=True, **options)
        report = Report(path, notes=rename_notes(stored))
        checked[name] = check_rows(stored, rules, report), report
    return checked


def check_rows(
    stored: StoredSet, rules: RowRules, report: Report, *, images: bool = True
) -> Iterator[Validated]:
    """Yield every row with its problem; when all were read, ``report`` also has the notes."""
    infos = ImageInfoReader()
    repeated: list[str] = []
    not_in_pixels, first_of_them = 0, None
    rows = (
        (row, infos(row.image) if images and isinstance(row, Row) else None)
        for row in rows_of(stored, without_images=not images)
    )
    for checked in validate_rows(rows, rules, report):
        row, info = checked.row, checked.info
        if checked.problem is None and info is not None and isinstance(row, Row):
            known = tasks_of_row(row, rules.rewards) if rules.every_reward else ()
            report.fits.update(fitting_tasks(row, info, known))
            if row.has_boxes and (box := _repeated(row)):
                repeated.append(f"row {row.place.row}: {box}")
            try:
                in_box_format(row, info, "pixels")
            except ValueError as error:
                not_in_pixels += 1
                first_of_them = first_of_them or BadRow(row.place, str(error))
        yield checked
    for bad in report.problems[-1:]:
        if bad.kind is Kind.SET:
            yield Validated(bad, None, None, bad)
    if repeated:
        report.notes.append(
            f"{stored.path}: {len(repeated)} solutions hold a box twice, such as {repeated[0]}; "
            "an answer that gives it once does not earn 1.0. For one object, keep one box"
        )
    if not_in_pixels:
        report.notes.append(
            f"{stored.path}: {not_in_pixels} rows train as they stand, but "
            f"{stored.path}:pixels leaves them out, such as {first_of_them}"
        )
    report.left_out = sum(map(len, stored.left_out.values()))
    report.notes += [*left_out_notes(stored), *file_notes(stored)]


def left_out_notes(stored: StoredSet) -> list[str]:
    """Say how much of the set made no row though nothing is wrong with it, and which columns
    rewards get under another name; ask when all rows were read.
    """
    notes = reserved_notes(stored)
    for reason, places in stored.left_out.items():
        some = "; ".join(places[:MAX_SHOWN]) + ("; ..." if len(places) > MAX_SHOWN else "")
        notes.append(f"{stored.path}: {len(places)} times {left_out_reason(reason)} ({some})")
    return notes


def left_out_reason(reason: str) -> str:
    of_category = reason in (UNSURE, NOT_IN_FULL)
    return f"a category of an image makes no row: {reason}" if of_category else reason


def _repeated(row: Row) -> str | None:
    """The first box that stands twice in the solution, under one label."""
    gold = read_boxes(gold_text(row.solution))
    seen = Counter(zip(gold.boxes, gold.labels, strict=True) if gold is not None else ())
    return next((str(box) for (box, _), count in seen.items() if count > 1), None)


def length_check(resize: ImageResize, limit: int, text_tokens: Callable[[str], int]) -> TooLong:
    """Report the length of a prompt that is longer than ``limit`` tokens."""

    def too_long(row: Row, info: ImageInfo) -> str | None:
        try:
            image = resize.tokens(info.width, info.height)
        except ValueError as error:
            return str(error)
        text = text_tokens(f"{row.columns.get('system') or ''}{row.problem}")
        if image + text <= limit:
            return None
        return f"the prompt takes {image + text} tokens ({image} for the image), over {limit}"

    return too_long


def rename_notes(stored: StoredSet) -> list[str]:
    """Name the columns to rename that the set does not have: most likely mistyped, where it is the
    only set of the command.
    """
    unknown = [name for name in stored.rename if name not in stored.names]
    if not unknown:
        return []
    return [
        f"{stored.path}: --columns renames {', '.join(unknown)}, but the set's columns are "
        f"{', '.join(stored.names)}"
    ]


# ---- what is not read ------------------------------------------------------------------------


def unread_notes(stored: StoredSet) -> list[str]:
    """Say which files of a folder were not read, and what to do."""
    path, notes = stored.path, []
    if stored.unnamed:
        notes.append(
            f"{path}: these files are not read, as their names tell no split, but others do: "
            f"{listed(stored.unnamed, path)}. Put train, validation or test into the name, or "
            "give such a file itself"
        )
    if stored.other:
        others = listed(stored.other, path)
        notes.append(f"{path}: beside its {stored.kind} files, these are not read: {others}")
    return notes


def file_notes(stored: StoredSet) -> list[str]:
    """Say the same, and which shards are missing by the names of the others."""
    path, notes = stored.path, unread_notes(stored)
    files = [*stored.files, *(bad.place.file for bad in stored.broken)] if path.is_dir() else []
    shards = {(*m.groups(), f.suffix) for f in files if (m := SHARD.fullmatch(f.stem))}
    missing = sorted(
        f"{name}-{number:05d}-of-{total}{ending}"
        for name, total, ending in {(name, *more) for name, _, *more in shards}
        for number in range(int(total))
        if (name, f"{number:05d}", total, ending) not in shards
    )
    if missing:
        some = ", ".join(missing[:MAX_SHOWN]) + (" ..." if len(missing) > MAX_SHOWN else "")
        notes.append(
            f"{path}: shards are missing, by the names of its files ({len(missing)}: {some}); "
            "download them, unless you left them out on purpose"
        )
    return notes


def unread_rows(stored: StoredSet) -> list[Path]:
    """Return the files that were not read though they seem to hold rows of the set."""
    return stored.unnamed + [file for file in stored.other if splits_told(file, stored.path)]
