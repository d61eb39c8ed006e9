"""Every row of a set, asked whether it is fit to train on: before training and in ``vlrft data
check``. What is asked of a row is in row_check.py, what comes of it in report.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.datasets.box_format import ImageResize, row_in_box_format
from swift_vlrft.datasets.forms import Form, unread_notes
from swift_vlrft.datasets.image import ImageError, ImageInfo, ImageInfoReader
from swift_vlrft.datasets.instances import NOT_IN_FULL, UNSURE
from swift_vlrft.datasets.parquet import missing_shards
from swift_vlrft.datasets.read import open_set, renamed_columns, rows_of
from swift_vlrft.datasets.report import MAX_SHOWN, Report
from swift_vlrft.datasets.routing import routed
from swift_vlrft.datasets.row import BadRow, Row, RowLocation
from swift_vlrft.datasets.row_check import fitting_tasks, row_problem
from swift_vlrft.datasets.schemas import is_for_swift
from swift_vlrft.parsing.answers import boxes_or_refusal, gold_text

TooLong = Callable[[Row, ImageInfo], str | None]


def check_set(
    path: Path | Form,
    *,
    split: str = "train",
    root: Path | None = None,
    rename: Mapping[str, str] | None = None,
    images: bool = True,
    rewards: Sequence[str] = (),
) -> Report:
    """Ask every row; ``images``: look at its picture, too. Raises DataError only for a set that
    cannot be used at all.
    """
    form = open_set(path, split=split, keep_going=True, rename=rename)
    report = Report(form.path)
    for _ in validate_rows(form, report, root=root, rename=rename, images=images, rewards=rewards):
        pass
    return report


def validate_rows(
    form: Form,
    report: Report,
    *,
    root: Path | None = None,
    rename: Mapping[str, str] | None = None,
    images: bool = True,
    too_long: TooLong | None = None,
    rewards: Sequence[str] = (),
    frame: str = "norm1000",
) -> Iterator[tuple[Row | BadRow, str | None]]:
    """Every row with what is wrong with it, or None; counted in ``report``. ``rewards`` are those
    that a command names, ``frame`` is the subset.
    """
    looks, infos = _PixelLook(), ImageInfoReader()
    not_in_pixels: list[tuple[RowLocation, str]] = []
    for row in rows_of(form, root=root, rename=rename, without_images=not images):
        report.rows += row.place.row is not None
        info, problem = None, row.problem if isinstance(row, BadRow) else None
        if isinstance(row, Row):
            row = routed(row, rewards)
            if images:
                found = infos(row.image)
                info, problem = (
                    (None, found.problem) if isinstance(found, ImageError) else (found, None)
                )
            problem = problem or row_problem(row, info, every_reward=images, rewards=rewards)
            if problem is None and too_long is not None and info is not None:
                problem = too_long(row, info)
                report.too_long += problem is not None
            if problem is None and info is not None:
                problem = box_format_problem(row, info, frame)
                if problem is None and (other := box_format_problem(row, info, "pixels")):
                    not_in_pixels.append((row.place, other))
        if problem is not None:
            report.problems.append((row.place, problem))
        elif isinstance(row, Row):
            report.add_good(row, rewards)
            if info is not None:
                looks.add(row, info)
                report.fits.update(fitting_tasks(row, info))
        yield row, problem
    if (note := looks.note()) is not None:
        report.notes.append(note)
    if not_in_pixels:
        place, text = not_in_pixels[0]
        report.notes.append(
            f"{form.path}: {len(not_in_pixels)} rows train as they stand, but not as "
            f"{form.path}:pixels, which leaves them out, as of {place}: {text}"
        )
    report.notes += [*left_out_notes(form), *file_notes(form, rename)]


def box_format_problem(row: Row, info: ImageInfo, frame: str) -> str | None:
    """Why a row cannot be put in the frame of a subset; None where it can."""
    size = info.width, info.height
    # Which model sees it is not known; it seldom sees a picture at its own size.
    seen = size if frame == "norm1000" else (size[0] + 1, size[1] + 1)
    try:
        row_in_box_format(row, frame, size, seen)
    except ValueError as error:
        return str(error)
    return None


def file_notes(form: Form, rename: Mapping[str, str] | None = None) -> list[str]:
    """Which files of the set were not read, which its names miss, and whether training would read
    it at all.
    """
    notes = unread_notes(form)
    if is_for_swift(renamed_columns(form, rename)):
        notes.append(
            f"{form.path}: for its column messages, training hands this set to ms-swift's own "
            "loader, which takes the prompt from there and leaves pictures and boxes as they are. "
            "What is said here holds for image, problem and solution: to train on those, add "
            '--columns \'{"messages": "other"}\''
        )
    shards = [*form.files, *(bad.place.file for bad in form.broken)]
    if form.path.is_dir() and (missing := missing_shards(shards)):
        some = ", ".join(missing[:MAX_SHOWN]) + (" ..." if len(missing) > MAX_SHOWN else "")
        notes.append(
            f"{form.path}: by the names of its files, {len(missing)} more are meant to be there "
            f"({some}); where that is not on purpose, download them"
        )
    return notes


def left_out_notes(form: Form) -> list[str]:
    """How much of the set made no row though nothing is wrong with it, and which; to be asked when
    all rows were read.
    """
    notes = []
    for reason, places in form.left_out.items():
        some = "; ".join(places[:MAX_SHOWN]) + ("; ..." if len(places) > MAX_SHOWN else "")
        notes.append(f"{form.path}: {len(places)} times {left_out_reason(reason)} ({some})")
    return notes


def left_out_reason(reason: str) -> str:
    of_category = reason in (UNSURE, NOT_IN_FULL)
    return f"a category of an image makes no row: {reason}" if of_category else reason


@dataclass
class _PixelLook:
    """Counts that tell boxes in pixels, said to be in norm1000, from the real ones."""

    boxes: int = 0
    beyond: int = 0

    def add(self, row: Row, info: ImageInfo) -> None:
        if row.columns.get("frame") != "norm1000" or max(info.width, info.height) >= 900:
            return
        gold = boxes_or_refusal(gold_text(row.solution)) if row.has_boxes else None
        for box in gold.boxes if gold is not None else ():
            if box is not None:
                self.boxes += 1
                self.beyond += box[2] > info.width or box[3] > info.height

    def note(self) -> str | None:
        if self.boxes < 20 or self.beyond:
            return None
        return (
            f"none of {self.boxes} boxes said to be in norm1000 reaches beyond its image's width "
            "and height in pixels: they look like pixels. If they are, add a column frame with "
            "the value pixels."
        )


def length_check(
    view: ImageResize, limit: int, text_tokens: Callable[[str], int]
) -> Callable[[Row, ImageInfo], str | None]:
    """Says of a row whose prompt is longer than ``limit`` tokens how long it is."""

    def too_long(row: Row, info: ImageInfo) -> str | None:
        try:
            image = view.tokens(info.width, info.height)
        except ValueError as error:
            return str(error)
        text = text_tokens(row.problem)
        if image + text <= limit:
            return None
        return f"the prompt takes {image + text} tokens ({image} for the image), over {limit}"

    return too_long
