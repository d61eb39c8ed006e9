"""What a record means: a schema tells from a set's columns whether its records are its own, and
makes rows of them.

A new kind of set is one file like virft.py, opened by a real record, and a line in schemas.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from swift_vlrft.datasets.forms import Form
from swift_vlrft.datasets.image import ImageInfo
from swift_vlrft.datasets.records import Record
from swift_vlrft.datasets.row import BadRow, Drawn, RowLocation
from swift_vlrft.parsing.answers import boxes_or_refusal, gold_text

RawExample = dict[str, Any]
"""image, problem, solution, task, frame and further columns of a row, before it has a place."""


@dataclass
class Context:
    """What a schema may ask of the set as a whole; ``info`` opens an image for its size."""

    form: Form
    info: Callable[[Any], ImageInfo]
    task: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    first: Sequence[tuple[RowLocation, Record] | BadRow] = ()
    """The first records of a stream, which is not to be read to its end for a look at it."""
    place: RowLocation | None = None
    """Of the record that is being read."""
    labels: dict[str, list[str]] = field(default_factory=dict)
    """The names behind whole numbers, by column."""

    def leave_out(self, reason: str, what: str = "") -> None:
        """Note that something of the record makes no row, though nothing is wrong with it."""
        place = f"{self.place}: {what}" if what else str(self.place)
        self.form.left_out.setdefault(reason, []).append(place)


@dataclass(frozen=True)
class RecordSchema:
    """``rows(record, context)`` gives the rows of a record; ValueError says what is wrong with it.

    ``light`` are the columns that hold no image; ``single``: every record is one row, with the
    image in its column ``image``.
    """

    name: str
    matches: Callable[[set[str]], bool]
    rows: Callable[[Record, Context], Iterator[RawExample]]
    single: bool = True


def drawn_on(record: Record, *, in_pixels: bool) -> Drawn | None:
    """The size of its picture that a record states in its columns width and height, if it does."""
    try:  # numbers as text come from CSV
        width, height = float(record["width"]), float(record["height"])
    except (KeyError, TypeError, ValueError):
        return None
    if not 1 <= min(width, height) <= max(width, height) < math.inf:
        return None
    name = record.get("image_id", record.get("id"))
    return Drawn(width, height, "" if name is None else f"image {name}", in_pixels)


def class_name(value: Any, names: list[str] | None, what: str) -> Any:
    """The name behind the number of a class; names stay as they are, and missing values."""
    if isinstance(value, str):
        return value
    if names is None:
        raise ValueError(
            f"the {what} is {value!r}, and no names are known; store names, or a ClassLabel"
        )
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise ValueError(f"the {what} {value!r} is none of the {len(names)} known ones")
    return names[value]


def task_of(solution: Any) -> str:
    """grounding for one box, detection for several or a refusal, else classification."""
    boxes = boxes_or_refusal(gold_text(solution))
    if boxes is None:
        return "classification"
    return "grounding" if len(boxes) == 1 else "detection"


def solution_problem(solution: Any) -> str | None:
    """What is wrong with a solution that is no text: a missing value, or of a type that no answer
    can be.
    """
    if solution is None:
        return "the row has no solution"
    if isinstance(solution, Real) and not isinstance(solution, bool):
        if math.isfinite(solution):
            return None
        return f"the solution is the number {float(solution)}, no answer: a missing value?"
    if isinstance(solution, (str, list, tuple, dict)):
        return None
    name = type(solution).__name__
    if name.startswith("bool"):
        return f"the solution is {str(solution).lower()}, no text; write the answer out, as text"
    if name == "Decimal":
        return None if solution.is_finite() else f"the solution is {solution}: a missing value?"
    return f"the solution is of the type {name}; text, a number or boxes are needed"


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


def leave_out_further_turns(record: Record, context: Context) -> None:
    """Note the questions of a conversation behind the first, which makes the row."""
    asked = [
        turn
        for turn in record["conversations"]
        if isinstance(turn, dict) and turn.get("from", turn.get("role")) in ("human", "user")
    ]
    for turn in asked[1:]:
        context.leave_out(FURTHER_TURN, gold_text(turn.get("value", turn.get("content")))[:60])


FURTHER_TURN = "a question behind the first of a conversation makes no row"
