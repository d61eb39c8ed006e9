"""Sets that are streamed, as ``datasets`` and ms-swift take them.

Parquet, on a disk or in a store, is read in the order of datasets/shards.py: files shuffled, split
among workers, and begun in the middle without reading what comes before. Anything else is read from
its beginning.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from datasets import IterableDataset
from datasets.iterable_dataset import ExamplesIterable, _BaseExamplesIterable

from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.report import Report
from swift_vlrft.datasets.sharded_set import ShardRecords, Teller, first_report
from swift_vlrft.datasets.shards import Shards
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.training import LoadOptions, streamed_rows

Say = Callable[[str], None]


def streamed(
    stored: StoredSet, options: LoadOptions, say: Say, end: Callable[[Report], None]
) -> IterableDataset:
    """``end`` is called with the report when the set was read to its end."""
    if isinstance(stored, ColumnFiles) and stored.kind == "Parquet":
        return IterableDataset(ShardedExamples(stored, options, say, end))
    tell = Teller(stored.path, say)

    def generate() -> Iterator[tuple[int, Any]]:
        report = Report(stored.path)
        yield from enumerate(streamed_rows(rows_of(stored), options, report, tell))
        if problem := report.no_row_of(options.tasks):
            raise DataError(problem)
        tell.finish()
        end(report)

    # Not from_generator: it would pickle the generator and all it refers to, for a fingerprint.
    return IterableDataset(ExamplesIterable(generate, {}))


def shuffled(dataset: IterableDataset, seed: int, buffer_size: int) -> IterableDataset:
    """Through a buffer of ``datasets``, unless all of it is in an order of its own: a buffer is
    lost where a run goes on, and its images are memory.
    """
    if not all(isinstance(part, ShardedExamples) for part in _sources(dataset._ex_iterable)):
        return dataset.shuffle(seed=seed, buffer_size=buffer_size)
    examples = dataset._ex_iterable.shuffle_data_sources(np.random.default_rng(seed))
    return IterableDataset(examples, info=dataset.info.copy())


def _sources(examples: Any) -> list[Any]:
    """What a pipeline of ``datasets`` reads from in the end."""
    inner = getattr(examples, "ex_iterables", None) or [getattr(examples, "ex_iterable", None)]
    return [examples] if inner == [None] else [end for part in inner for end in _sources(part)]


class ShardedExamples(_BaseExamplesIterable):
    """The rows of Parquet files. Its state is how many records were read of the epoch's order, so
    that ``load_state_dict`` goes on in the middle.
    """

    def __init__(
        self, stored: ColumnFiles, options: LoadOptions, say: Say, end: Callable[[Report], None]
    ) -> None:
        super().__init__()
        self.stored, self.options, self.say, self.end = stored, options, say, end
        self.shards = Shards(stored)
        first = first_report(stored, options.rewards, options.tasks)
        self.keep_unread = not first.scored
        self.seeds: tuple[int, ...] = ()
        """Of the shuffling, and of the epoch; none: as the files lie."""
        self.part = (0, 1)

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        start = self._state_dict["position"] if self._state_dict else 0
        order = {"seed": self.seeds, "shuffle": bool(self.seeds), "part": self.part}
        records = ShardRecords.of(self.stored, self.shards, start=start, **order)
        report, tell = Report(self.stored.path), Teller(self.stored.path, self.say)
        rows = streamed_rows(rows_of(records), self.options, report, tell, self.keep_unread)
        for row in rows:
            if self._state_dict:
                self._state_dict["position"] = records.position
            yield records.position, row
        if self._state_dict:
            self._state_dict["position"] = records.position
        whole = start == 0 and self.part == (0, 1)  # a worker's windows may be of another task
        if whole and (problem := report.no_row_of(self.options.tasks)):
            raise DataError(problem)
        tell.finish()
        self.end(report)

    def _init_state_dict(self) -> dict[str, Any]:
        self._state_dict = {"position": 0, "type": type(self).__name__}
        return self._state_dict

    def _with(self, **changes: Any) -> ShardedExamples:
        other = copy.copy(self)
        other._state_dict = None  # type: ignore[assignment]
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def shuffle_data_sources(self, generator: np.random.Generator) -> ShardedExamples:
        seed = int(copy.deepcopy(generator).integers(1 << 62))
        return self._with(seeds=(*self.seeds, seed))

    def shard_data_sources(
        self, num_shards: int, index: int, contiguous: bool = True
    ) -> ShardedExamples:
        at, of = self.part
        return self._with(part=(at + of * index, of * num_shards))

    def reshard_data_sources(self) -> ShardedExamples:
        return self

    @property
    def num_shards(self) -> int:
        windows = -(-len(self.shards.blocks) // self.shards.in_window)
        return max(1, len(range(self.part[0], windows, self.part[1])))
