"""A row of any set has one form for everything after the reading.

    Row(RowLocation(Path("train-0.parquet"), 3), {"bytes": b"\\x89PNG...", "path": "4.png"},
        "Detect all dogs ...", "<answer>No Objects</answer>",
        {"task": "detection", "frame": "norm1000"})

``frame`` says in which format a row's boxes are (geometry/box_format.py), None if it has none;
pixels are those of its image as it is stored (upright). Rewards get further columns under their
own names, but for those that ms-swift uses itself: ``objects`` reaches them as ``row_objects``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from swift_vlrft.rewards import TASK_NAMES

POINT_TASKS = tuple(name for name, task in TASK_NAMES.items() if task.has_points)
BOX_TASKS = tuple(name for name, task in TASK_NAMES.items() if task.gold_has_boxes)

RESERVED_COLUMNS = frozenset(
    {
        # What a row of ms-swift's template holds (StdTemplateInputs), its own system turn apart ...
        *("messages", "images", "videos", "audios", "tools", "objects", "label", "channel"),
        "dataset",  # which ms-swift makes the name of the set
        *("margin", "chat_template_kwargs", "mm_processor_kwargs", "extra_kwargs"),
        # ... a sample of its GRPO (GRPOSample) ...
        *("prompt_id", "request_id", "response_token_ids", "response_loss_mask", "extra"),
        *("rollout_logprobs", "finish_reason", "add_eos", "rollout_infos", "routed_experts"),
        *("encoded", "teacher_prompt", "teacher_images", "teacher_messages", "rewards"),
        *("advantages", "is_truncated"),
        # ... and a call of a reward.
        *("completions", "trainer_state", "trajectory_inputs"),
    }
)
RESERVED_BEGINNINGS = ("rejected_", "positive_", "negative_")
"""Columns that begin so become a second conversation of the row (TemplateInputs)."""


@dataclass(frozen=True)
class RowLocation:
    """The place of a row, for messages: rows count from 0 within their file; in COCO's annotations
    it is an image, by its id. Without a row it is the file as a whole.
    """

    file: Path
    row: int | None = None
    what: str = "row"

    def __str__(self) -> str:
        return str(self.file) if self.row is None else f"{self.file}, {self.what} {self.row}"


@dataclass(frozen=True)
class AnnotatedSize:
    """The size of the image that boxes were drawn on, as its source states it. ``name`` is what the
    source calls it ("image 9"). Not ``exact``: boxes in thousandths fit a copy of any size.
    """

    width: float
    height: float
    name: str = ""
    exact: bool = True


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

    @property
    def has_boxes(self) -> bool:
        """Tell whether the solution holds boxes, or "No Objects"."""
        task = self.columns.get("task")
        return task in BOX_TASKS if task else self.columns.get("frame") is not None


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
