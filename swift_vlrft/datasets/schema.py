"""A schema recognises its records by a set's columns, and makes rows of them.

A new kind of set is one file like virft.py, opened by a real record, and a line in schemas.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

from swift_vlrft.datasets.image import ImageSize, image_size
from swift_vlrft.datasets.row import AnnotatedSize, BadRow, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Record, StoredSet, image_of
from swift_vlrft.geometry.box_format import Corners, convert_box
from swift_vlrft.geometry.readings import (
    ENOUGH,
    MOST,
    UNKNOWN,
    Numbers,
    PictureSize,
    Reading,
    SizedBox,
    clipped,
    corners,
    fits,
    misfit,
    shares,
    ways,
)
from swift_vlrft.parsing.answers import gold_text, normalise, read_boxes

ANSWER_FORM = (
    "Output the thinking process in <think> </think> and the final answer in <answer> </answer> "
    "tags: <think> ... </think> <answer>{}</answer>"
)
"""The end of a prompt, with the form of the answer."""

FAR = 1e15  # no side of a box lies further out, nor do NaN and infinity lie within
LOOKED_AT = 1000
"""So many images are asked for their sizes, where no column states them."""

EXPLICIT = frozenset({"image", "problem", "solution"})
"""The columns that say what a row is, whatever lies beside them."""

CORNERS = Reading("xyxy")
"""What records hold in a column of boxes where nothing is stated."""

RawExample = dict[str, Any]
"""image, problem, solution, task, frame and further columns of a row, before it has a place."""


@dataclass
class Context:
    """Facts about the set and its place, for schemas."""

    stored: StoredSet
    labels: dict[str, list[str]]
    """Class names for integer columns."""
    root: Path | None
    """The folder that image paths may not leave."""
    place: RowLocation
    """The place of the record that is being read."""
    known_reading: Reading | None = None
    """What ``reading`` found, once."""

    def image_size(self, value: Any) -> ImageSize:
        return image_size(image_of(value, self.stored.folder, self.root))

    def sides(self, record: Record, image: str) -> tuple[int, int]:
        """Return the width and height that a record states, or else those of its image."""
        size = annotated_size_of(record) or self.image_size(record.get(image))
        return round(size.width), round(size.height)

    def reading(
        self,
        column: str,
        image: str,
        boxes_of: Callable[[Any], list[Any]],
        rival: Reading | None = None,
    ) -> Reading:
        """Return what the numbers of the set's boxes are: what a command states, else corners in
        pixels. ``boxes_of`` gives the boxes in a value of the ``column``; all are judged, or those
        of the first images where no column states sizes. MisreadBoxes where another reading fits
        better, and where nothing is stated and the ``rival`` fits as well.
        """
        if self.known_reading is None:
            sized = {"width", "height"} <= set(self.stored.columns)
            columns = [column, *(("width", "height") if sized else (image,))]
            known: list[SizedBox] = []
            entries = (e for e in self.stored.records(columns) if not isinstance(e, BadRow))
            for _, record in islice(entries, None if sized else LOOKED_AT):
                try:
                    boxes = [box for box in boxes_of(record.get(column)) if four_numbers(box)]
                except (ValueError, TypeError):  # its row says what is wrong with it
                    continue
                try:
                    size: PictureSize = self.sides(record, image)
                except ValueError:
                    size = UNKNOWN
                known += [(box, size) for box in boxes]
            known = [box for box in known if box[1] != UNKNOWN] or known
            path, stated = self.stored.path, self.stored.reading
            if stated is None and rival is not None:
                _refuse_unclear(path, known, rival)
            elif stated is None and len(known) < ENOUGH:
                known = []  # each row says what is wrong with it
            self.known_reading = stated or CORNERS
            refuse_misread(path, known, self.known_reading, lambda n: _shown(*known[n]))
        return self.known_reading

    def leave_out(self, reason: str, what: str = "") -> None:
        """Count something in the record that correctly makes no row."""
        place = f"{self.place}: {what}" if what else str(self.place)
        self.stored.left_out.setdefault(reason, []).append(place)


Rows = Callable[[Record, Context], Iterator[RawExample]]


@dataclass(frozen=True)
class RecordSchema:
    """``rows(record, context)`` yields the rows of a record; ValueError names its problem.

    ``single``: every record is one row. ``image``: the column that holds a record's image.
    ``numbers``: the column that holds boxes as numbers, read as the set's ``reading`` says; else
    they stand in ``solution``.
    """

    name: str
    matches: Callable[[set[str]], bool]
    rows: Rows
    single: bool = True
    image: str = "image"
    numbers: str | None = None


class MisreadBoxes(DataError):
    """The boxes of a set cannot be meant as they are read, or could be meant in several ways."""

    def __init__(self, path: Path, said: str) -> None:
        super().__init__(
            f"{path}: {said}: say which is meant, to vlrft data convert (of a COCO file, also to "
            "data coco), or to read_rows as boxes= and unit=; or correct the boxes"
        )


def refuse_misread(
    path: Path, boxes: Sequence[SizedBox], reading: Reading, shown: Callable[[int], str]
) -> None:
    """Raise MisreadBoxes where another reading fits more of a set's boxes: it names the options,
    and the commands that take them; ``shown`` describes the box of a number.
    """
    if wrong := misfit(boxes, reading):
        raise MisreadBoxes(path, wrong.said(shown(wrong.first)))


def _refuse_unclear(path: Path, boxes: Sequence[SizedBox], rival: Reading) -> None:
    """Raise MisreadBoxes where the rival fits as well, and would give different boxes."""
    fitting = shares(boxes, [CORNERS, rival])
    differ = (b for b in boxes if len({corners(b[0], way, b[1]) for way in fitting}) > 1)
    fits_as_well = fitting[rival] >= max(MOST, fitting[CORNERS])
    if fits_as_well and (first := next(differ, None)):
        total = len(boxes)
        said = [f"{round(s * total)} of {total} {ways([way], '')}" for way, s in fitting.items()]
        raise MisreadBoxes(
            path,
            f"its boxes, such as {_shown(*first)}, lie inside their pictures in two readings, "
            f"{' and '.join(said)}",
        )


def _shown(box: Numbers, size: PictureSize) -> str:
    where = "" if size == UNKNOWN else f" of {size[0]:g} x {size[1]:g}"
    return f"[{', '.join(f'{side:g}' for side in box)}] in an image{where}"


def annotated_size_of(record: Record, *, exact: bool = True) -> AnnotatedSize | None:
    """Return the image size that a record states in its columns width and height, if it does."""
    try:
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
    return all(isinstance(v, int | float) and -FAR <= v <= FAR for v in value)


def in_thousandths(box: Numbers, reading: Reading, size: tuple[int, int]) -> Corners | None:
    """Return the part of a box that its image holds, in norm1000; None if it has no area."""
    inside = clipped(corners(box, reading, size), size)
    return inside and convert_box(inside, "pixels", "norm1000", size=size)


def box_of(value: Any, reading: Reading, size: tuple[int, int]) -> Corners | None:
    """Do ``in_thousandths`` for a record's value; ValueError if it is no box inside its image."""
    if not four_numbers(value):
        raise ValueError(f"the box {value!r} is not four numbers")
    if not fits(value, reading, size):
        raise ValueError(
            f"the box {value}, {reading}, reaches beyond the image of {size[0]} x {size[1]}, ends "
            "before it begins, or is a dot; boxes of another form need --boxes and --unit"
        )
    return in_thousandths(value, reading, size)


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
    """Return grounding for one box, detection for several or "No Objects", else classification.

    Other words for no object, such as "None", may be a class: a task, or a reward, states it.
    """
    boxes = read_boxes(text := gold_text(solution))
    if boxes is None or not (boxes or normalise(text) in ("", "no objects")):
        return "classification"
    return "grounding" if len(boxes) == 1 else "detection"


def solution_problem(solution: Any) -> str | None:
    """Say why a value that is no text cannot be a solution: it is missing, or of a wrong type."""
    if solution is None:
        return "the row has no solution"
    if isinstance(solution, str | list | tuple | dict):
        return None
    if not isinstance(solution, Real | Decimal) or isinstance(solution, bool):
        kind = type(solution).__name__
        return f"the solution is {str(solution)[:80]}, of the type {kind}; write the answer as text"
    if not math.isfinite(solution):
        return f"the solution is the number {solution}, no answer: a missing value?"
    return None


def further(record: Record, *used: str) -> RawExample:
    """Return the columns of a record of which its row is not made: rewards get them."""
    return {name: value for name, value in record.items() if name not in used}


def turns_of(
    record: Record,
    column: str,
    roles: Sequence[str] = ("system", "user", "assistant"),
    keys: tuple[str, str] = ("role", "content"),
) -> list[str | None]:
    """Return the texts of the roles in a column of chat turns; a column system is a turn, too.

    A row is one question and its answer: each role speaks once at most, in this order. ValueError
    shows a turn that does not go with that.
    """
    by, said = keys
    turns = record[column] if isinstance(record[column], list) else [record[column]]
    if record.get("system") is not None:
        turns = [{by: roles[0], said: record["system"]}, *turns]
    texts: dict[str, str] = {}
    left = iter(roles)
    for turn in turns:
        role: Any = turn.get(by) if isinstance(turn, dict) else None
        text = turn.get(said) if role is not None else None
        if role not in left or not isinstance(text, str):  # which takes the roles before it, too
            raise ValueError(
                f"{column} holds {str(turn)[:80]}: one text each of {', '.join(roles)} at most, in "
                "this order, is needed, and a row for each further question"
            )
        texts[role] = text
    return [texts.get(role) for role in roles]


def conversation(record: Record, column: str, *form: Any) -> RawExample:
    """Make the row of chat turns in a form of ``turns_of``; a column solution is the answer."""
    system, question, answer = turns_of(record, column, *form)
    solution = record.get("solution")
    answer = answer if solution is None or solution == "" else solution
    return further(record, column) | {"problem": question, "solution": answer, "system": system}
