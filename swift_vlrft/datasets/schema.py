"""A schema recognises its records by a set's columns, and makes rows of them.

A new kind of set is one file like virft.py, opened by a real record, and a line in schemas.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

from swift_vlrft.datasets.image import ImageSize, image_size
from swift_vlrft.datasets.row import AnnotatedSize, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Record, StoredSet, image_of
from swift_vlrft.geometry.readings import (
    ENOUGH,
    NEARLY_ALL,
    UNKNOWN,
    PictureSize,
    Reading,
    SizedBox,
    corners,
    misfit,
    shares,
    ways,
)
from swift_vlrft.parsing.answers import gold_text, read_boxes

ANSWER_FORM = (
    "Output the thinking process in <think> </think> and the final answer in <answer> </answer> "
    "tags: <think> ... </think> <answer>{}</answer>"
)
"""The end of a prompt, with the form of the answer."""

LOOKED_AT = 1000
"""So many images are asked for their sizes, where no column states them."""

EXPLICIT = frozenset({"image", "problem", "solution"})
"""The columns that say what a row is, whatever lies beside them."""

RawExample = dict[str, Any]
"""image, problem, solution, task, frame and further columns of a row, before it has a place."""


@dataclass
class Context:
    """Facts about the set and its place, for schemas."""

    stored: StoredSet
    labels: dict[str, list[str]]
    """Class names for integer columns."""
    place: RowLocation | None = None
    """The place of the record that is being read."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Facts about the set, computed once."""

    def image_size(self, value: Any) -> ImageSize:
        return image_size(image_of(value, self.stored.folder, self.stored.root))

    def reading(
        self,
        columns: Sequence[str],
        boxes_of: Callable[[Record], tuple[list[Any], PictureSize | None]],
        among: Sequence[Reading],
        most: int | None = LOOKED_AT,
    ) -> Reading:
        """Return what the numbers of the set's boxes are, by its first ``most`` records (None:
        all): what a command states, else the one ``among`` these that fits. ``boxes_of`` gives a
        record's boxes, and the size of its image if it states it, or opens it; ``columns`` are
        those that it reads. MisreadBoxes where another reading fits more boxes, or several fit.
        """
        if "reading" not in self.notes:
            known: list[SizedBox] = []
            for record in islice(self.stored.sample(columns), most):
                try:
                    boxes, size = boxes_of(record)
                except ValueError:  # its row says what is wrong with it
                    continue
                known += [(box, size or UNKNOWN) for box in boxes if four_numbers(box)]
            known = [box for box in known if box[1] != UNKNOWN] or known
            if self.stored.reading is None and len(among) == 1 and len(known) < ENOUGH:
                known = []  # of a published form; each row says what is wrong with it
            among = among if self.stored.reading is None else [self.stored.reading]
            self.notes["reading"] = _the_reading(self.stored.path, known, among)
        return self.notes["reading"]  # type: ignore[no-any-return]

    def size_of(self, image: Any) -> PictureSize | None:
        """Return the size of an image that can be opened."""
        try:
            size = self.image_size(image)
        except ValueError:
            return None
        return size.width, size.height

    def leave_out(self, reason: str, what: str = "") -> None:
        """Count something in the record that correctly makes no row."""
        place = f"{self.place}: {what}" if what else str(self.place)
        self.stored.left_out.setdefault(reason, []).append(place)


@dataclass(frozen=True)
class RecordSchema:
    """``rows(record, context)`` yields the rows of a record; ValueError names its problem.

    ``single``: every record is one row. ``image``: the column that holds a record's image.
    ``numbers``: the column that holds boxes as numbers, read as the set's ``reading`` says; else
    they stand in ``solution``.
    """

    name: str
    matches: Callable[[set[str]], bool]
    rows: Callable[[Record, Context], Iterator[RawExample]]
    single: bool = True
    image: str = "image"
    numbers: str | None = None


class MisreadBoxes(DataError):
    """The boxes of a set cannot be meant as they are read, or could be meant in several ways."""


def refuse_misread(
    path: Path,
    boxes: Sequence[SizedBox],
    reading: Reading,
    shown: Callable[[int], str],
    takers: str,
) -> None:
    """Raise MisreadBoxes where another reading fits more of a set's boxes: it names the options,
    and the commands that take them; ``shown`` describes the box of a number.
    """
    if wrong := misfit(boxes, reading):
        said = wrong.said(shown(wrong.first))
        raise MisreadBoxes(f"{path}: {said}: say which is meant, to {takers}, or correct the boxes")


def _the_reading(path: Path, boxes: Sequence[SizedBox], among: Sequence[Reading]) -> Reading:
    """The one reading that a set's boxes fit."""

    def shown(number: int) -> str:
        box, (width, height) = boxes[number]
        size = "" if (width, height) == UNKNOWN else f" of {width:g} x {height:g}"
        return f"[{', '.join(f'{side:g}' for side in box)}] in an image{size}"

    fitting = shares(boxes, among)
    best = max(among, key=lambda reading: fitting[reading])
    takers = "vlrft data convert"
    refuse_misread(path, boxes, best, shown, takers)
    ties = [way for way in among if fitting[way] >= min(fitting[best], NEARLY_ALL)]
    for i, (box, size) in enumerate(boxes):
        if len({corners(box, reading, size) for reading in ties}) > 1:
            number = round(min(fitting[reading] for reading in ties) * len(boxes))
            raise MisreadBoxes(
                f"{path}: its boxes, such as {shown(i)}, fit several readings: {number} of "
                f"{len(boxes)} lie inside their pictures {ways(ties, ' and ')}: say which is "
                f"meant, to {takers}"
            )
    return best


def annotated_size_of(record: Record, *, exact: bool) -> AnnotatedSize | None:
    """Return the image size that a record states in its columns width and height, if it does."""
    try:  # numbers as text come from CSV
        width, height = float(record["width"]), float(record["height"])
    except (KeyError, TypeError, ValueError):
        return None
    if not 1 <= min(width, height) <= max(width, height) < math.inf:
        return None
    name = record.get("image_id", record.get("id"))
    return AnnotatedSize(width, height, "" if name is None else f"image {name}", exact)


def four_numbers(value: Any) -> TypeGuard[list[float]]:
    """Tell whether a value is a list of four finite numbers, as a box is."""
    if not isinstance(value, list) or len(value) != 4:
        return False
    return all(isinstance(v, int | float) and math.isfinite(v) for v in value)


def text_in(record: Record, column: str) -> str:
    """Return the text of a column, without blanks around it; ValueError if there is none."""
    if not isinstance(text := record[column], str) or not text.strip():
        raise ValueError(f"the {column} is {str(text)[:80]!r}; a text is needed")
    return text.strip()


def class_name(value: Any, names: list[str] | None, what: str) -> Any:
    """Return the name for a class number; names and missing values are returned unchanged."""
    if isinstance(value, str):
        return value
    if names is None:
        raise ValueError(
            f"the {what} is {value!r}, and no names are known; store names, or a ClassLabel"
        )
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise ValueError(f"the {what} {value!r} is none of the {len(names)} known names")
    return names[value]


def task_of(solution: Any) -> str:
    """Return grounding for one box, detection for several or none, else classification."""
    boxes = read_boxes(gold_text(solution))
    if boxes is None:
        return "classification"
    return "grounding" if len(boxes) == 1 else "detection"


def solution_problem(solution: Any) -> str | None:
    """Say why a value that is no text cannot be a solution: it is missing, or of a wrong type."""
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
        return f"the solution is {str(solution).lower()}, no text; write the answer as text"
    if name == "Decimal":
        return None if solution.is_finite() else f"the solution is {solution}: a missing value?"
    return f"the solution is of the type {name}; text, a number or boxes are needed"


def further(record: Record, *used: str) -> RawExample:
    """Return the columns of a record of which its row is not made: rewards get them."""
    return {name: value for name, value in record.items() if name not in used}


def conversation(record: Record, context: Context) -> RawExample:
    """Make the row of ``conversations``: the first question and its answer, and a system turn. An
    answer in a column ``solution`` goes first; questions after the first are counted as left out.
    """
    questions, answers, system = (_turns(record, roles) for roles in (ASKS, ANSWERS, ("system",)))
    if (solution := record.get("solution")) is None or solution == "":
        solution = answers[0] if answers else None
    for texts, roles in ((questions, ASKS), ([solution], ANSWERS)):
        if not texts or texts[0] is None:
            turns = str(record["conversations"])[:80]
            raise ValueError(f"conversations holds no turn of {' or '.join(roles)}: {turns}")
    for text in questions[1:]:
        context.leave_out(FURTHER_TURN, text[:60])
    example = further(record, "conversations") | {"problem": questions[0], "solution": solution}
    return example | ({"system": system[0]} if system and not record.get("system") else {})


def _turns(record: Record, roles: tuple[str, ...]) -> list[str]:
    turns = record["conversations"]
    values = [
        turn.get("value", turn.get("content"))
        for turn in (turns if isinstance(turns, list) else ())
        if isinstance(turn, dict) and turn.get("from", turn.get("role")) in roles
    ]
    return [gold_text(value) for value in values if value is not None]


ASKS, ANSWERS = ("human", "user"), ("gpt", "assistant")
FURTHER_TURN = "a question after the first of a conversation makes no row"
