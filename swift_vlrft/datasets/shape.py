"""What a record means: a shape tells from a set's columns whether its records are its own, and
makes rows of them.

A new kind of set is one file like virft.py, opened by a real record, and a line in shapes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from swift_vlrft.answers import boxes_or_refusal, gold_text
from swift_vlrft.datasets.forms import Form, Record
from swift_vlrft.datasets.image import Head
from swift_vlrft.datasets.row import BadRow, Place

Draft = dict[str, Any]
"""image, problem, solution, task, frame and further columns of a row, before it has a place."""


@dataclass
class Context:
    """What a shape may ask of the set as a whole; ``head`` opens an image for its size."""

    form: Form
    head: Callable[[Any], Head]
    task: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    first: Sequence[tuple[Place, Record] | BadRow] = ()
    """The first records of a stream, which is not to be read to its end for a look at it."""
    place: Place | None = None
    """Of the record that is being read."""


@dataclass(frozen=True)
class Shape:
    """``rows(record, context)`` gives the rows of a record; ValueError says what is wrong with it.

    ``light`` are the columns that hold no image; ``single``: every record is one row, with the
    image in its column ``image``.
    """

    name: str
    matches: Callable[[set[str]], bool]
    rows: Callable[[Record, Context], Iterator[Draft]]
    single: bool = True


def task_of(solution: Any) -> str:
    """grounding for one box, detection for several or a refusal, else classification."""
    boxes = boxes_or_refusal(gold_text(solution))
    if boxes is None:
        return "classification"
    return "grounding" if len(boxes) == 1 else "detection"


def text_of_turn(record: Record, roles: tuple[str, ...]) -> str:
    """The text of the first turn of ``conversations`` by one of ``roles``."""
    turns = record.get("conversations")
    if isinstance(turns, list):
        for turn in turns:
            if isinstance(turn, dict) and turn.get("from", turn.get("role")) in roles:
                value = turn.get("value", turn.get("content"))
                if isinstance(value, str):
                    return value
                if value is not None:
                    return gold_text(value)
    raise ValueError(f"conversations holds no turn of {' or '.join(roles)}: {str(turns)[:80]}")
