"""What a Parquet folder holds, without its images: rows by split and task, columns, box formats.

read_facts(Path("data/coco8")).splits["train"].tasks    Counter({"detection": 32})
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.datasets.schema import task_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import by_split
from swift_vlrft.hub.contact_sheet import Place
from swift_vlrft.rewards import TASK_NAMES

if TYPE_CHECKING:
    import pyarrow as pa

_SHARD = re.compile(r"(.+?)-\d{5}-of-\d{5}")
SHOWN = 8


@dataclass
class Split:
    rows: int = 0
    files: list[str] = field(default_factory=list)
    """Their paths in the folder."""
    tasks: Counter[str] = field(default_factory=Counter)
    box_formats: Counter[str] = field(default_factory=Counter)


@dataclass
class SetFacts:
    schema: pa.Schema
    splits: dict[str, Split] = field(default_factory=dict)
    without_gold: int = 0
    guessed: bool = False
    """Some rows state no task; what they look like was counted."""
    places: list[Place] = field(default_factory=list)
    """Up to ``SHOWN`` rows, of every task in turn."""

    @property
    def tasks(self) -> list[str]:
        """The tasks that are known, the most frequent first."""
        total: Counter[str] = sum((one.tasks for one in self.splits.values()), Counter())
        return [name for name, _ in total.most_common() if name in TASK_NAMES]

    @property
    def box_formats(self) -> list[str]:
        return sorted({name for one in self.splits.values() for name in one.box_formats})

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.splits.values())


def read_facts(folder: Path) -> SetFacts:
    """Reads the texts of every shard, row group by row group; ``folder`` has been checked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted((folder / "data").glob("*.parquet"))
    named = by_split(files, folder)
    try:
        schemas = [pq.read_schema(file) for file in files]
        facts = SetFacts(pa.unify_schemas(schemas, promote_options="permissive"))
    except pa.ArrowException as error:
        raise DataError(
            f"{folder}: the shards hold columns of several types ({error}); vlrft data convert "
            "writes them alike"
        ) from None
    of_task: dict[str, list[Place]] = defaultdict(list)
    for file in files:
        shard = _SHARD.fullmatch(file.stem)
        split = facts.splits.setdefault(shard[1] if shard else named[file] or "train", Split())
        split.files.append(f"data/{file.name}")
        with pq.ParquetFile(file) as opened:
            there = [n for n in ("task", "frame", "solution") if n in opened.schema_arrow.names]
            number = 0
            for group in range(opened.num_row_groups):
                for row in opened.read_row_group(group, columns=there).to_pylist():
                    task = row.get("task")
                    facts.guessed |= not task
                    facts.without_gold += row.get("solution") is None
                    task = str(task or task_of(row.get("solution")))
                    split.tasks[task] += 1
                    if task in BOX_TASKS:
                        split.box_formats[str(row.get("frame") or "norm1000")] += 1
                    of_task[task].append((file, number))
                    number += 1
        split.rows += number
    with_boxes_first = sorted(of_task, key=lambda task: task not in BOX_TASKS)
    facts.places = _spread([of_task[task] for task in with_boxes_first])
    return facts


def _spread(tasks: list[list[Place]]) -> list[Place]:
    """``SHOWN`` places, evenly over each task's rows, the tasks in turn."""
    share = -(-SHOWN // max(1, len(tasks)))
    chosen = [
        [places[n * len(places) // share] for n in range(min(share, len(places)))]
        if len(places) > share
        else places
        for places in tasks
    ]
    turns = [places[n] for n in range(share) for places in chosen if n < len(places)]
    return turns[:SHOWN]
