"""Parquet sets larger than memory and disk: rows by their numbers, in an order that is known
without reading any.

    rows     0 ... 9,999,999     as the footers count them, file by file
    blocks   row groups          what is read at once; a few are kept
    windows  blocks drawn from all files, whose rows are shuffled together

Which row comes n-th in an epoch follows from the seed, the epoch and n alone, so every process of
a run knows the rows of all others, and a run that goes on reads nothing again. Shuffling rows over
the whole set would read a row group for every row; here a window's are read once.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.remote import ATTEMPTS, RemotePath, brief, opened
from swift_vlrft.datasets.row import RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Record

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_BLOCKS = 16
"""Row groups whose rows are shuffled together, where their bytes allow."""
WINDOW_BYTES = 192 << 20
"""Of a window's rows in memory. A row group that is larger than a share of it is read in parts."""
READERS = 8
"""Row groups that are read at the same time: of a store, most of the time is waiting."""


class DamagedBlock(Exception):
    """Rows that no further attempt would read."""


class Shards:
    """The rows of a Parquet set; ``files`` and ``rows`` as the footers say."""

    def __init__(self, stored: ColumnFiles) -> None:
        self.files = stored.files
        self.names = stored.names
        groups = stored.groups
        share = WINDOW_BYTES // 4
        blocks: list[tuple[int, int, int, int]] = []  # file, row group, its first row, how many
        first: list[int] = []  # the row of the file that it begins with
        whole: list[tuple[int, ...]] = []  # row groups and rows of the file, bytes of this group
        size = 1.0
        for file, found in enumerate(groups):
            row, rows = 0, sum(count for count, _ in found)
            for group, (count, total) in enumerate(found):
                parts = max(1, min(count, -(-total // share)))
                step = max(1, -(-count // parts))  # an empty shard has one empty row group
                for start in range(0, count, step):
                    blocks.append((file, group, start, min(step, count - start)))
                    first.append(row + start)
                    whole.append((len(found), rows, total))
                    size = max(size, total / parts)
                row += count
        if not blocks:
            raise DataError(f"{stored.path} has no rows")
        self.blocks = np.array(blocks, np.int32)
        self.first = np.array(first, np.int64)
        self.whole = np.array(whole, np.int64)
        self.ends = np.cumsum(self.blocks[:, 3], dtype=np.int64)
        self.in_window = max(1, min(WINDOW_BLOCKS, int(WINDOW_BYTES // size)))
        self.bytes_read = 0
        """Compressed, of the columns that were read."""
        self._kept: OrderedDict[tuple[int, tuple[str, ...]], pa.Table] = OrderedDict()
        self._damaged: dict[int, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state | {"_lock": threading.Lock()}

    # ---- order -------------------------------------------------------------------------------

    def order(
        self,
        seed: int | Sequence[int] = 0,
        start: int = 0,
        *,
        shuffle: bool = True,
        part: tuple[int, int] = (0, 1),
    ) -> Iterator[np.ndarray[Any, Any]]:
        """The numbers of the rows from the ``start``-th on, window by window; of every second
        window, from the first or second on, for a ``part`` of (0, 2) or (1, 2).
        """
        blocks = np.arange(len(self.blocks))
        if shuffle:
            blocks = np.random.default_rng(seed).permutation(blocks)
        at = np.arange(0, len(blocks), self.in_window)
        sizes = np.add.reduceat(self.blocks[blocks, 3], at, dtype=np.int64)[part[0] :: part[1]]
        ends = np.cumsum(sizes)
        at = at[part[0] :: part[1]]
        for number in range(int(np.searchsorted(ends, start, side="right")), len(at)):
            first = int(at[number])
            rows = np.concatenate(
                [self._rows_of(block) for block in blocks[first : first + self.in_window]]
            )
            if shuffle:
                rows = np.random.default_rng([*np.atleast_1d(seed), first]).permutation(rows)
            yield rows[max(0, start - int(ends[number] - sizes[number])) :]

    def _rows_of(self, block: int) -> np.ndarray[Any, Any]:
        end = int(self.ends[block])
        return np.arange(end - int(self.blocks[block, 3]), end)

    def block_of(self, row: int) -> int:
        return int(np.searchsorted(self.ends, row, side="right"))

    def place(self, row: int) -> RowLocation:
        """File and row within it."""
        block = self.block_of(row)
        within = row - int(self.ends[block]) + int(self.blocks[block, 3])
        return RowLocation(self.files[int(self.blocks[block, 0])], int(self.first[block]) + within)

    # ---- reading -----------------------------------------------------------------------------

    def read(self, row: int, names: Sequence[str]) -> Record:
        """The columns of a row. DamagedBlock if its row group cannot be decoded; DataError if a
        store does not answer any more.
        """
        block = self.block_of(row)
        within = row - int(self.ends[block]) + int(self.blocks[block, 3])
        table = self._table(block, tuple(names))
        return {name: table.column(name)[within].as_py() for name in names}

    def prepare(self, rows: Sequence[int] | np.ndarray[Any, Any], names: Sequence[str]) -> None:
        """Read the row groups of these rows at the same time; what fails is left to ``read``."""
        wanted = tuple(names)
        ends = np.searchsorted(self.ends, np.asarray(rows), side="right")
        missing = [int(b) for b in np.unique(ends) if (int(b), wanted) not in self._kept]
        if len(missing) < 2:
            return

        def fetch(block: int) -> None:
            with suppress(DamagedBlock, DataError):
                self._table(block, wanted)

        with ThreadPoolExecutor(min(READERS, len(missing))) as pool:
            list(pool.map(fetch, missing))

    def _table(self, block: int, names: tuple[str, ...]) -> pa.Table:
        with self._lock:
            if (block, names) in self._kept:
                self._kept.move_to_end((block, names))
                return self._kept[block, names]
        if block in self._damaged:
            raise DamagedBlock(self._damaged[block])
        try:
            table = self._fetched(block, names)
        except DamagedBlock as error:
            self._damaged[block] = str(error)
            raise
        with self._lock:
            self._kept[block, names] = table
            total = sum(kept.nbytes for kept in self._kept.values())
            while len(self._kept) > 1 and (
                total > WINDOW_BYTES * 1.25 or len(self._kept) > 2 * WINDOW_BLOCKS
            ):
                total -= self._kept.popitem(last=False)[1].nbytes
        return table

    def _fetched(self, block: int, names: tuple[str, ...]) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self.files[int(self.blocks[block, 0])]
        for attempt in range(ATTEMPTS):
            try:
                return self._decoded(block, names)
            except (pa.ArrowException, FileNotFoundError, ValueError) as error:
                raise DamagedBlock(f"{file}: {brief(error)}") from error
            except OSError as error:
                if not isinstance(file, RemotePath):
                    raise DamagedBlock(f"{file}: {brief(error)}") from error
                failed = error
                time.sleep(min(0.25 * 2**attempt, 8))
        try:
            pq.read_metadata(opened(file))
        except OSError as error:
            raise DataError(
                f"{file}: the store does not give it after {ATTEMPTS} attempts ({brief(error)}). "
                "Go on from the last checkpoint when it does"
            ) from error
        raise DamagedBlock(f"{file}: {brief(failed)}") from failed

    def _decoded(self, block: int, names: tuple[str, ...]) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file, group, start, count = map(int, self.blocks[block])
        with pq.ParquetFile(
            opened(self.files[file]), pre_buffer=isinstance(self.files[file], RemotePath)
        ) as source:
            rest = (source.metadata.num_row_groups, source.metadata.num_rows)
            found = source.metadata.row_group(min(group, rest[0] - 1)) if rest[0] else None
            if not found or [*rest, found.total_byte_size] != self.whole[block].tolist():
                raise DamagedBlock(f"{self.files[file]} was rewritten after this run had begun")
            wanted = [found.column(i) for i in range(found.num_columns)]
            self.bytes_read += sum(
                c.total_compressed_size
                for c in wanted
                if c.path_in_schema.partition(".")[0] in names
            )
            if found.num_rows == count:
                return source.read_row_group(group, columns=list(names), use_threads=False)
            # Part of a row group: what stands before it is decoded, a little at a time, and let go.
            parts, at = [], 0
            batches = source.iter_batches(
                min(64, count), row_groups=[group], columns=list(names), use_threads=False
            )
            for batch in batches:
                low, high = max(start - at, 0), min(start + count - at, len(batch))
                if low < high:
                    parts.append(batch.slice(low, high - low))
                at += len(batch)
                if at >= start + count:
                    break
            return pa.Table.from_batches(parts)
