"""Sets with the columns that `vlrft data difficulty` adds: filtered, and from easy to hard.

{"problem": "...", "solution": "red", "pass_rate": 0.25, "reward_mean": 0.25, "reward_std": 0.43}

Share.of("0.1:0.9").holds(0.25)                                     True
order_folder(Path("runs/difficulty/m-s/set"), Path("data/ordered"))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.convert import image_base, item_of
from swift_vlrft.datasets.licence import source_licence
from swift_vlrft.datasets.opening import file_notes, open_set
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.row import BadRow
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import WORDS
from swift_vlrft.datasets.writer import Item, Written, write_folder
from swift_vlrft.files.jsonl import finite
from swift_vlrft.files.markdown import code

COLUMNS = ("pass_rate", "reward_mean", "reward_std")
Rates = tuple[float, float] | None
"""Pass rate and mean reward of a row; None if it has none."""


@dataclass(frozen=True)
class Share:
    """The pass rates from ``low`` to ``high``, both included."""

    low: float
    high: float

    @classmethod
    def of(cls, text: str) -> Share:
        """``LOW:HIGH``; ValueError says what is wrong with another text."""
        first, _, last = text.partition(":")
        low, high = finite(first), finite(last)
        if low is None or high is None:
            raise ValueError(f"--keep {text}: two numbers are needed, such as 0.1:0.9")
        if low > high:
            raise ValueError(f"--keep {text}: {low:g} is more than {high:g}; give LOW:HIGH")
        if low < 0 or high > 1:
            raise ValueError(f"--keep {text}: pass rates are from 0 to 1, such as 0.1:0.9")
        return cls(low + 0.0, high + 0.0)  # no -0

    def __str__(self) -> str:
        return f"{self.low:.12g}:{self.high:.12g}"

    def holds(self, rate: float | None) -> bool:
        # A set may have passed through float32 since.
        return rate is not None and self.low - 1e-6 <= rate <= self.high + 1e-6


def check_outside(folder: Path, source: Path, name: str) -> None:
    """DataError if what is to be written to ``folder`` would be read as rows of ``source``."""
    if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
        raise DataError(
            f"{name} {folder} lies in {source}, of whose rows it would become a part; name a "
            "folder outside of it"
        )


def order_folder(
    source: Path,
    folder: Path,
    *,
    split: str = "train",
    root: Path | None = None,
    keep: Share | None = None,
    box_format: str = "",
    box_key: str | None = None,
    keep_going: bool = False,
) -> Written:
    """What ``vlrft data order`` does: the rows by pass rate, then by mean reward, the easiest
    first; rows without a pass rate come last, or are dropped with ``keep``.
    DataError if the set lacks the columns, and for a row that cannot be used.
    """
    stored = open_set(source, split=split, keep_going=keep_going, root=root)
    check_outside(folder, source, "DST")
    missing = [name for name in COLUMNS[:2] if name not in stored.columns]
    if missing:
        raise DataError(
            f"{source} lacks the column{'s' * (len(missing) > 1)} {' and '.join(missing)}, by "
            f"which rows are kept and ordered (it has {', '.join(stored.columns)}). "
            f"`vlrft data difficulty MODEL {source}` writes the set with them"
        )
    base = image_base(source, root)
    without = dropped = 0

    def items() -> Iterator[Item]:
        nonlocal without, dropped
        for row in rows_of(stored):
            item = item_of(row, base, box_format, box_key)
            try:
                rates = None if isinstance(item, BadRow) else rates_of(item)
            except ValueError as error:
                item, rates = BadRow(row.place, str(error)), None
            if isinstance(item, BadRow):
                yield item
                continue
            without += rates is None
            if keep is not None and not keep.holds(rates[0] if rates else None):
                dropped += 1
                continue
            yield item

    which = f", those with a pass rate of {keep.low:g} to {keep.high:g}" if keep else ""
    try:
        written = write_folder(
            folder,
            {WORDS.get(split.lower(), split): items()},
            keep_going=keep_going,
            about=f"The rows of {code(source.name)} from easy to hard{which}, by "
            "`vlrft data order`.",
            licence=source_licence(source),
            sort_key=_key,
        )
    except DataError as error:
        if keep is not None and dropped and "no row to write" in str(error):
            raise DataError(nothing_kept(source, keep, dropped)) from None
        raise
    written.notes = file_notes(stored)
    written.counts[f"rows without a pass rate{'' if keep else ', written last'}"] += without
    if keep is not None:
        written.counts[f"rows outside --keep {keep}"] += dropped - without
    return written


def nothing_kept(source: Path, keep: Share, rows: int) -> str:
    return f"--keep {keep} holds none of the {rows} rows of {source}; give a wider range"


def rates_of(columns: Mapping[str, Any]) -> Rates:
    """None for missing values, also NaN; ValueError for what is no share of 1."""
    values = [columns.get(name) for name in COLUMNS[:2]]
    if any(value is None or value != value for value in values):
        return None
    rates = [finite(value) for value in values]
    for name, value, rate in zip(COLUMNS, values, rates, strict=False):
        if rate is None or not 0 <= rate <= 1:
            raise ValueError(f"the column {name} holds {str(value)[:40]!r}; 0 to 1 is needed")
    return rates[0] or 0.0, rates[1] or 0.0


def _key(row: Mapping[str, Any]) -> tuple[float, ...]:
    rates = rates_of(row)
    return (1,) if rates is None else (0, -rates[0], -rates[1])
