"""Rows of sets larger than memory and disk, made as they are asked for.

    ShardRecords    one after the other, in the order of shards.py: bad rows are left out
    ShardedSet      by number: every number is a row, a bad one's that of another row

The second is for GRPO, whose sampler gives the numbers: all processes must agree on what a number
stands for without telling each other, so what replaces a bad row follows from its number alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any

import numpy as np

from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.report import Report
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.shards import DamagedBlock, Shards
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import FIRST_RECORDS, Record, Records, StoredSet, Stream
from swift_vlrft.datasets.training import LoadOptions, streamed_rows

CHECKED = 1000
"""Rows that are checked before a model is loaded, drawn from all files."""
NEAR = 8
REMEMBERED = 50_000
"""Bad rows that are not told again."""
TRIES = 1000
"""Rows that are tried in place of a bad one: the next ones, then any."""


@dataclass
class ShardRecords(Stream):
    """Records of Parquet files in the order of ``windows``; ``position``: how many were read."""

    shards: Shards = field(default_factory=lambda: Shards.__new__(Shards))
    windows: Iterable[np.ndarray[Any, Any]] = ()
    position: int = 0

    @classmethod
    def of(cls, stored: ColumnFiles, shards: Shards, **order: Any) -> ShardRecords:
        """``order`` is ``Shards.order``'s."""
        shared = {one.name: getattr(stored, one.name) for one in fields(StoredSet)}
        windows = shards.order(**order)
        return cls(**shared, shards=shards, windows=windows, position=order.get("start", 0))

    def _read(self, names: list[str]) -> Records:
        for window in self.windows:
            self.shards.prepare(window, names)
            for number in window:
                self.position += 1
                yield self.found(int(number), names)

    def found(self, number: int, names: Sequence[str]) -> Any:
        place = self.shards.place(number)
        try:
            return place, self.shards.read(number, names)
        except DamagedBlock as error:
            return BadRow(place, f"its row group cannot be read: {error}")

    def sample(self, columns: Sequence[str]) -> Iterator[Record]:
        """Of rows from several files, the same for every process."""
        names = [self.stored_name(c) for c in columns if c in self.columns]
        numbers = (int(n) for window in self.shards.order() for n in window)
        for found in (self.found(number, names) for number in islice(numbers, FIRST_RECORDS)):
            if not isinstance(found, BadRow):
                yield {self.rename.get(k, k): value for k, value in found[1].items()}


def first_report(
    stored: ColumnFiles,
    rewards: Sequence[str] = (),
    tasks: Sequence[str] = (),
    *,
    rows: int = CHECKED,
) -> Report:
    """The report on some rows of all files, without their images."""
    shards = Shards(stored)
    windows: list[np.ndarray[Any, Any]] = []
    for window in shards.order():
        windows.append(window[: rows - sum(map(len, windows))])
        if sum(map(len, windows)) >= rows:
            break
    some = replace(ShardRecords.of(stored, shards), windows=windows)
    return check_set(some, images=False, rewards=rewards, tasks=tasks)


class Teller:
    """Says which rows are bad, but not ten thousand times: the first ones, then at every doubling.

    A stream runs for days, so what it left out must be in the log when it happens.
    """

    def __init__(self, path: Any, say: Callable[[str], None], shown: int = 20) -> None:
        self.path, self.say, self.shown = path, say, shown
        self.bad = 0
        self._told: set[RowLocation] = set()

    def __call__(self, problem: BadRow) -> None:
        if problem.place in self._told:  # a sampler may ask for a row again
            return
        if len(self._told) < REMEMBERED:
            self._told.add(problem.place)
        self.bad += 1
        if self.bad <= self.shown:
            self.say(f"left out: {problem}")
        elif self.bad & (self.bad - 1) == 0:
            self.say(f"{self.path}: {self.bad} bad rows so far, the last: {problem}")

    def finish(self) -> None:
        """Where a stream ends: how many there were, if not all of them were named."""
        if self.bad > self.shown:
            self.say(f"{self.path}: {self.bad} bad rows were left out")


class ShardedSet:
    """The rows by number, as a map-style data set of torch; ``epoch`` is its sampler's.

    What ms-swift's ``load_dataset`` does with a set is here: it names its columns, adds one, and
    asks for it to be shuffled, which the sampler does.
    """

    def __init__(
        self, stored: ColumnFiles, options: LoadOptions, say: Callable[[str], None]
    ) -> None:
        if options.tasks:
            raise DataError(
                f"{stored.path}:{'/'.join(options.tasks)}: of a streamed set all rows train. Put "
                "the rows of a task into a folder of their own (`vlrft data convert`)"
            )
        if options.box_format == "pixels" and options.resize is None:
            raise DataError("the subset pixels needs the model's family; give --model_type")
        self.path = stored.path
        self.shards = Shards(stored)
        self.options = options
        self.report = first_report(stored, options.rewards)
        self.epoch = 0
        self._view = replace(ShardRecords.of(stored, self.shards), broken=[])
        self._tell = Teller(self.path, say)
        self._constant: dict[str, Any] = {}
        self._candidates: Iterator[int] = iter(())
        self._made: Iterator[Record] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is not forked: generators stay behind."""
        view = replace(self._view, windows=())
        return self.__dict__ | {"_made": None, "_candidates": iter(()), "_view": view}

    def __repr__(self) -> str:
        return f"ShardedSet({self.path}, {len(self)} rows in {len(self.shards.files)} files)"

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, number: int) -> Record:
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        self._candidates = self._tried(int(number) % len(self))
        if self._made is None:
            self._view.windows = self._asked()
            self._made = streamed_rows(
                rows_of(self._view), self.options, Report(self.path), self._tell, self.keep_unread
            )
        try:
            return next(self._made) | self._constant
        except BaseException:
            self._made = None  # a generator that has raised is at its end
            raise

    def __getitems__(self, numbers: Sequence[int]) -> list[Record]:
        """Of a batch, in which a sampler may repeat a row."""
        self.shards.prepare(list(numbers), self._view.names)
        made = {number: self[number] for number in dict.fromkeys(numbers)}
        return [copy.deepcopy(made[number]) for number in numbers]

    @property
    def bad(self) -> int:
        """Rows that this process found bad."""
        return self._tell.bad

    @property
    def keep_unread(self) -> bool:
        """Whether rows train whose gold no named reward reads: where that is so of all rows."""
        return not self.report.scored

    def _asked(self) -> Iterator[np.ndarray[Any, Any]]:
        while (number := next(self._candidates, None)) is not None:
            yield np.array([number])
        raise DataError(
            f"{self.path}: {TRIES} rows one after the other cannot be trained on; some are in the "
            "log, and `vlrft data check` lists all"
        )

    def _tried(self, number: int) -> Iterator[int]:
        end = int(self.shards.ends[block := self.shards.block_of(number)])
        count = int(self.shards.blocks[block, 3])
        start = end - count
        for step in range(min(NEAR, count)):
            yield start + (number - start + step) % count
        others = np.random.default_rng([number]).integers(0, len(self), TRIES - NEAR)
        yield from map(int, others)

    # ---- what load_dataset asks --------------------------------------------------------------

    @property
    def column_names(self) -> list[str]:
        return list(self[0])

    def add_column(self, name: str, values: Sequence[Any]) -> ShardedSet:
        """One value for all rows."""
        self._constant[name] = values[0]
        return self

    def shuffle(self, **_: Any) -> ShardedSet:
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def take(self, count: int) -> ShardedSet:
        raise DataError(
            f"{self.path}#{count}: of a streamed set all rows are there for training; --max_steps "
            "says how many train"
        )
