"""``--streaming true`` reads sets larger than memory, as IterableDatasets of ``datasets``.
Shuffling, #COUNT and several sets work as in ``datasets`` and ms-swift.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from datasets import IterableDataset
from torch.utils import data

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.check import CHECKED, beginning, check_set
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.report import Report
from swift_vlrft.datasets.row import BadRow
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.training import LoadOptions, streamed_rows

SHOWN = 20
"""Bad rows that are named, and then the last at every doubling: a stream may have millions."""


def streamed(
    stored: StoredSet, options: LoadOptions, say: Callable[[str], None]
) -> IterableDataset:
    """Return a set's rows as they are read; ``say`` is told which of them are left out."""
    rows = partial(_rows, beginning(stored), options, _teller(stored.path, say))
    if not isinstance(stored, ColumnFiles):
        return IterableDataset.from_generator(rows)
    # Files are what ``datasets`` shuffles, and shares among data workers.
    known = check_set(beginning(stored), images=False, rewards=options.rewards, first=CHECKED)
    kwargs = {"files": stored.files, "keep_unread": not known.scored}
    return IterableDataset.from_generator(rows, gen_kwargs=kwargs)


def _rows(
    stored: StoredSet,
    options: LoadOptions,
    tell: Callable[[BadRow], None],
    files: list[Path] | None = None,
    keep_unread: bool | None = None,
) -> Iterator[dict[str, Any]]:
    if files is not None:
        stored = replace(stored, files=files, broken=[])  # broken files were named at the start
    report = Report(stored.path)
    yield from streamed_rows(rows_of(stored), options, report, tell, keep_unread)
    if files is None and (problem := report.no_row_of(options.tasks)):
        raise DataError(problem)


def _teller(path: Path, say: Callable[[str], None]) -> Callable[[BadRow], None]:
    numbers = count(1)

    def tell(problem: BadRow) -> None:
        bad = next(numbers)
        if bad <= SHOWN:
            say(f"left out: {problem}")
        elif bad & (bad - 1) == 0:
            say(f"{path}: {bad} bad rows so far, the last: {problem}")

    return tell


class RepeatedRows(data.IterableDataset[dict[str, Any]]):
    """Repeats the rows of a stream as TRL's RepeatSampler does a set's: each of ``prompts`` rows
    ``copies`` times, all of that ``repeats`` times; then the next rows, and after the last the
    first again, shuffled anew. What is left at the end of a pass is no whole batch, and is skipped.
    """

    def __init__(
        self, rows: Any, *, copies: int, prompts: int, repeats: int, epoch: int = 0
    ) -> None:
        self.rows, self.copies, self.prompts, self.repeats = rows, copies, prompts, repeats
        self.epoch = epoch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for epoch in count(self.epoch):
            self.rows.set_epoch(epoch)
            rows, batch = iter(self.rows), None
            while len(read := list(islice(rows, self.prompts))) == self.prompts:
                batch = read
                for _ in range(self.repeats):
                    for row in batch:
                        for _ in range(self.copies):
                            yield copy.deepcopy(row)
            if batch is None:
                raise DataError(too_small(len(read), self.prompts))


def too_small(rows: int, prompts: int) -> str:
    return (
        f"--streaming true: the data sets have {rows} good rows, and a generation takes {prompts} "
        "prompts (--generation_batch_size / --num_generations): not one step would be trained"
    )
