"""A clean copy of a set: the rows without a problem, and a list of those that were left out.

out   CLEAN/data/train-00000-of-00001.parquet, CLEAN/README.md, CLEAN/left_out.jsonl
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from swift_vlrft.datasets.check import TooLong, validate_rows
from swift_vlrft.datasets.convert import written_row
from swift_vlrft.datasets.image import stored_image
from swift_vlrft.datasets.read import open_set
from swift_vlrft.datasets.report import Report
from swift_vlrft.datasets.row import Row
from swift_vlrft.datasets.writer import Item, LeftOut, Written, state_of, write_folder


def write_clean(
    source: Path,
    target: Path,
    splits: list[str],
    *,
    root: Path | None = None,
    rename: Mapping[str, str] | None = None,
    too_long: TooLong | None = None,
    rewards: Sequence[str] = (),
    frame: str = "norm1000",
    limit: str = "",
    on_row: Callable[[int], None] = lambda n: None,
) -> tuple[Written, list[Report]]:
    """Check every row of ``splits`` and write the good ones to ``target``, once, on the way.

    ``limit`` says what ``too_long`` holds rows against: a run with another limit does not go on
    where this one was killed.
    """
    base = Path(os.path.abspath(root or (source if source.is_dir() else source.parent)))
    reports = {split: Report(source) for split in splits}

    def rows(split: str) -> Callable[[int], Iterator[Item]]:
        def items(start: int) -> Iterator[Item]:
            form = open_set(source, split=split, keep_going=True, rename=rename)
            found = validate_rows(
                form,
                reports[split],
                root=root,
                rename=rename,
                too_long=too_long,
                rewards=rewards,
                frame=frame,
            )
            for number, (row, problem) in enumerate(found):
                if number < start:
                    continue  # written before a kill; validate_rows again for the report
                if problem is not None or not isinstance(row, Row):
                    yield LeftOut(str(row.place), str(problem))
                else:
                    yield written_row(row, stored_image(row.image, base)[0])

        return items

    identity = f"clean {state_of(source)} {splits} {root} {dict(rename or {})} {frame} {limit}"
    notes = f"The rows of `{source.name}` that `vlrft data check --fix` found nothing wrong with."
    written = write_folder(
        target, {s: rows(s) for s in splits}, identity=identity, notes=notes, on_item=on_row
    )
    return written, list(reports.values())
