"""``vlrft data convert`` keeps rows by how often a model answers them rightly.

    vlrft eval MODEL SET --task counting --samples 8 --temperature 1 --out runs/eval/m
    vlrft data convert SET data/kept --pass-rates runs/eval/m --keep 0.1:0.9

The rates are the column ``pass_rate`` of the set, or stand in what ``vlrft eval`` wrote, whose
lines carry the number of the row and the hash of its image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.image import image_hash
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.completions import read_completions
from swift_vlrft.files.jsonl import finite

COLUMN = "pass_rate"


@dataclass(frozen=True)
class Share:
    """The pass rates from ``low`` to ``high``, both included."""

    low: float
    high: float

    @classmethod
    def of(cls, text: str) -> Share:
        """Parse ``LOW:HIGH``; DataError says what is wrong with another text."""
        first, _, last = text.partition(":")
        low, high = finite(first), finite(last)
        if low is None or high is None or not 0 <= low <= high <= 1:
            raise DataError(f"--keep {text}: give LOW:HIGH, two numbers from 0 to 1, like 0.1:0.9")
        return cls(low, high)

    def holds(self, rate: float) -> bool:
        # A set may have passed through float32 since.
        return self.low - 1e-6 <= rate <= self.high + 1e-6


@dataclass
class PassRates:
    """Pass rates choose the rows to ``keep``. ``rates`` come from the run in ``file``, by the
    number of the row, with the hash of its image; None: from the set's own column.
    """

    keep: Share
    rates: dict[int, tuple[float, str]] | None = None
    file: Path | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def chosen(
        self, rows: Iterable[tuple[Row | BadRow, Mapping[str, Any] | BadRow]]
    ) -> Iterator[Mapping[str, Any] | BadRow]:
        """Yield, of all rows of a split, each with what would be written, those to write."""
        left = 0
        for number, (row, item) in enumerate(rows):
            if isinstance(row, BadRow) or isinstance(item, BadRow):
                yield item
                continue
            rate = self._rate(number, row)
            if rate is not None and self.keep.holds(rate):
                left += 1
                yield {**item, COLUMN: rate}
            else:
                why = "without a pass rate, left out" if rate is None else "outside --keep"
                self.counts[f"rows {why}"] += 1
        if not left and self.counts:
            counts = ", ".join(f"{n} {what}" for what, n in self.counts.items())
            raise DataError(f"no row is left: {counts}; give a wider --keep")

    def _rate(self, number: int, row: Row) -> float | None:
        if self.rates is None:
            value = row.columns.get(COLUMN)
            return None if value is None or value != value else _share(value, row.place)
        if number not in self.rates:
            return None
        rate, image = self.rates[number]
        if image != image_hash(row.image):
            raise DataError(
                f"{self.file} says of row {number} that its image has the hash {image}, but the "
                f"image of {row.place} has another: name the set and the --split of that run"
            )
        return rate


def _share(value: Any, place: object) -> float:
    rate = finite(value)
    if rate is None or not 0 <= rate <= 1:
        raise DataError(f"{place}: {COLUMN} is {str(value)[:40]!r}, not from 0 to 1")
    return rate


def pass_rates(
    source: Path,
    columns: Iterable[str],
    keep: str | None,
    file: Path | None,
) -> PassRates | None:
    """Read the two options of ``vlrft data convert``; None if none is given. DataError for
    options that cannot be followed.
    """
    if keep is None:
        if file is not None:
            raise DataError("--pass-rates needs --keep LOW:HIGH, such as 0.1:0.9")
        return None
    share = Share.of(keep)
    if file is None:
        if COLUMN not in columns:
            raise DataError(
                f"{source} has no column {COLUMN}: `vlrft eval MODEL {source} --samples 8 "
                "--temperature 1` writes such rates; give its folder with --pass-rates"
            )
        return PassRates(share)
    file = file / "predictions.jsonl" if file.is_dir() else file
    if not file.is_file():
        raise DataError(f"--pass-rates: {file} does not exist (from {Path.cwd()})")
    rates: dict[int, tuple[float, str]] = {}
    for line in read_completions(file, []):
        number, rate, image = (line.row.get(name) for name in ("row", COLUMN, "image_hash"))
        if not isinstance(number, int) or not isinstance(image, str) or rate is None:
            raise DataError(
                f"{line} lacks row, {COLUMN} or image_hash; `vlrft eval MODEL {source} --samples "
                "8` on a data set writes them"
            )
        entry = _share(rate, line), image
        if rates.setdefault(number, entry) != entry:
            raise DataError(f"{line}: row {number} had another {COLUMN} or image_hash before")
    if not rates:
        raise DataError(f"{file} holds no answers")
    return PassRates(share, rates, file)
