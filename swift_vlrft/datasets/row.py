"""A row of any set has one form for everything after the reading.

    Row(RowLocation(Path("train-0.parquet"), 3), {"bytes": b"\\x89PNG...", "path": "4.png"},
        "Detect all dogs ...", "<answer>No Objects</answer>",
        {"task": "detection", "frame": "norm1000"})

``frame`` says in which format a row's boxes are (geometry/box_format.py), None if it has none;
pixels are those of its image as it is stored (upright). Rewards get further columns under their
own names, but for those that ms-swift uses itself: ``objects`` reaches them as ``row_objects``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.image import image_size
from swift_vlrft.datasets.source import AnnotatedSize as AnnotatedSize
from swift_vlrft.datasets.source import RowLocation as RowLocation
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import BoxList, gold_text, read_boxes
from swift_vlrft.rewards import TASK_NAMES

POINT_TASKS = tuple(name for name, task in TASK_NAMES.items() if task.has_points)
BOX_TASKS = tuple(name for name, task in TASK_NAMES.items() if task.gold_has_boxes)

_RESERVED = tomllib.loads(Path(__file__).with_name("reserved_columns.toml").read_text("utf-8"))
RESERVED_COLUMNS = frozenset(chain.from_iterable(_RESERVED["columns"].values()))
RESERVED_BEGINNINGS = tuple(_RESERVED["beginnings"])


@dataclass(frozen=True)
class Row:
    """A row's ``image`` holds bytes, or the absolute path of a file. Its ``columns`` hold task,
    frame and every further column as it was. ``annotated_size`` is None if no size is stated.

    ``columns["task"]`` is what the set, its form or the caller says, None if nobody does. What
    such a row looks like is ``guess``; of a row whose task only the form of its set tells (LISA:
    grounding), that task again. A guess never keeps a row from a reward: see validate.py.
    """

    place: RowLocation
    image: dict[str, Any]
    problem: str
    solution: str
    columns: dict[str, Any] = field(default_factory=dict)
    annotated_size: AnnotatedSize | None = None
    guess: str | None = None
    column: str | None = None
    """The stored column in whose row the image's bytes lie, in Parquet and Arrow."""

    @property
    def has_boxes(self) -> bool:
        """Tell whether the solution holds boxes, or "No Objects"."""
        task = self.columns.get("task")
        return task in BOX_TASKS if task else self.columns.get("frame") is not None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright image; DataError if it cannot be trained on."""
        size = image_size(self.image)
        return size.width, size.height

    @property
    def gold(self) -> BoxList:
        """The boxes of the solution, with their labels; empty where it holds none."""
        return (read_boxes(gold_text(self.solution)) if self.has_boxes else None) or BoxList()

    @property
    def boxes(self) -> list[Box | None]:
        """The gold boxes x1, y1, x2, y2, in the format that the column ``frame`` names."""
        return self.gold.boxes

    @property
    def labels(self) -> list[str | None]:
        """The label of each gold box: its own, or the category that the row asks for."""
        return [label or self.columns.get("category") for label in self.gold.labels]


class Kind(Enum):
    """The consequence of a problem for the set."""

    ROW = "the row is left out"
    TOO_LONG = "the row is longer than the command allows, and is left out"
    GOLD = (
        "the gold solution is no answer to its task, or the task is unknown: the set is not "
        "trained on, since the same mistake usually stands in rows that read"
    )
    SET = "the boxes of the set are not in the format that it declares"
    NOT_READ = "the row states no task, and no reward that the command names reads its gold"


STOPS = (Kind.GOLD, Kind.NOT_READ, Kind.SET)
"""Problems with which a set is not trained on at all."""


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be read, trained on or written; ``problem`` does not name the place."""

    place: RowLocation
    problem: str
    kind: Kind = Kind.ROW

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


def safe_name(column: str) -> str:
    """Return the name under which rewards get a column."""
    reserved = column in RESERVED_COLUMNS or column.startswith(RESERVED_BEGINNINGS)
    return f"row_{column}" if reserved else column
