"""What `vlrft data difficulty` writes: the ranking of the rows, and the set with their rates.

OUT/ranking.jsonl                     a row per line, the likeliest wrong gold first
OUT/set, or OUT/keep_0.1_0.9          the set, or a part of it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from swift_vlrft.datasets.convert import image_base, item_of
from swift_vlrft.datasets.licence import source_licence
from swift_vlrft.datasets.pass_rates import COLUMNS, Share, nothing_kept
from swift_vlrft.datasets.row import BadRow
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import WORDS
from swift_vlrft.datasets.writer import Item, write_folder
from swift_vlrft.evaluation.difficulty import RowScores
from swift_vlrft.evaluation.run import move_aside
from swift_vlrft.evaluation.sampled import SampledSet
from swift_vlrft.evaluation.set_difficulty import Difficulty
from swift_vlrft.files.markdown import code
from swift_vlrft.files.records import as_json
from swift_vlrft.files.writing import write_atomically

_SET = re.compile(r"set|keep_[\d.e-]+_[\d.e-]+")


def written_sets(out: Path) -> list[str]:
    return [p.name for p in out.glob("*") if _SET.fullmatch(p.name)]


def write_ranking(ranking: list[RowScores], out: Path) -> None:
    """Write every row's scores; sets that were written with others are moved aside."""
    text = "".join(json.dumps(as_json(row)) + "\n" for row in ranking)
    file, sets = out / "ranking.jsonl", written_sets(out)
    if sets and not (file.exists() and file.read_text() == text):
        move_aside(out, sets)
    write_atomically(file, text)


def write_set(
    found: Difficulty, rows: list[RowScores], queries: SampledSet, out: Path, keep: Share | None
) -> None:
    """The rows as they were read, with the columns; one that is there has the same scores."""
    folder = out / ("set" if keep is None else f"keep_{keep}".replace(":", "_"))
    by_number, dataset = {row.number: row for row in rows}, queries.settings.dataset
    if keep is not None and not any(keep.holds(row.pass_rate) for row in rows):
        there = ", ".join(f"{one.rows} with {one.low:g}" for one in found.histogram if one.rows)
        raise DataError(f"{nothing_kept(dataset, keep, len(rows))} (there are {there})")
    base = image_base(dataset, queries.settings.images)

    def items() -> Iterator[Item]:
        for number, row in enumerate(queries.rows()):
            item, of = item_of(row, base), by_number.get(number)
            if isinstance(item, BadRow):
                yield item
            elif keep is None or (of is not None and keep.holds(of.pass_rate)):
                rates = (of.pass_rate, of.reward_mean, of.reward_std) if of else (None,) * 3
                yield item | dict(zip(COLUMNS, rates, strict=True))

    which = "" if keep is None else f" with a pass rate of {keep.low:g} to {keep.high:g}"
    if not folder.exists():
        write_folder(
            folder,
            {WORDS.get(found.split.lower(), found.split): items()},
            about=f"The rows of {code(dataset.name)}{which}, by `vlrft data difficulty`: "
            f"`pass_rate`, `reward_mean` and `reward_std` are those of {found.samples} answers per "
            f"row at temperature {found.temperature:g}, of {code(Path(found.model).name)}.",
            licence=source_licence(dataset),
        )
    found.folder = str(folder)
    found.written = sum(pq.read_metadata(f).num_rows for f in folder.glob("data/*.parquet"))
