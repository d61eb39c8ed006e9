"""Converts a row's boxes and prompt to another box format: only numbers and their sentence change.

    in    "... the bounding boxes (between 0 and 1000, integer) ..."
          [{'Position': [254, 303, 291, 365], 'Confidence': 1}]
    out   "... the bounding boxes (in pixels, x from 0 to 644 and y from 0 to 476, integer) ..."
          [{'Position': [164, 144, 187, 174], 'Confidence': 1}]

for an image that Qwen2.5-VL sees as 644 x 476. What is rewritten is read again, and refused where
it does not say the converted boxes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from swift_vlrft.datasets.box_format_sentence import in_pixels, in_thousandths
from swift_vlrft.datasets.row import Row
from swift_vlrft.families import image_rule, known_family, resized_size
from swift_vlrft.families.resize import capped_size
from swift_vlrft.geometry.box_format import BOX_FORMATS, Size, convert_box
from swift_vlrft.parsing.answers import Box, answer_span, gold_text, read_boxes

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d++(?:\.\d++)?|\.\d++)(?:[eE][-+]?\d++)?(?!\w|\.\d)")
_MARK = 1_000_000
"""Placeholder for the first number of a text while the numbers of boxes are located."""


@dataclass(frozen=True)
class ImageResize:
    """How a model's images are resized: its family, and the limits that the command sets."""

    family: str
    min_pixels: int
    max_pixels: int
    picture_pixels: int | None = None
    """ms-swift's flag ``--max_pixels``, which scales the image before the family's resize."""

    def size(self, width: int, height: int) -> Size:
        shown = capped_size(width, height, self.picture_pixels)
        return resized_size(self.family, *shown, **self._limits)

    def problem(self, width: int, height: int) -> str | None:
        """Why the model's processor rejects an image of that size; None if it does not."""
        try:
            self.size(width, height)
        except ValueError as error:
            return str(error)
        width, height = capped_size(width, height, self.picture_pixels)
        if not image_rule(self.family).loses_a_side(width, height, max_pixels=self.max_pixels):
            return None
        return (
            f"an image of {width} x {height} pixels is left with a side of 0 pixels under "
            f"max_pixels {self.max_pixels}; raise MAX_PIXELS, or cut the image"
        )

    def tokens(self, width: int, height: int) -> int:
        """With those that mark the image's begin and end."""
        rule, shown = image_rule(self.family), capped_size(width, height, self.picture_pixels)
        return rule.tokens(*shown, **self._limits) + rule.marks(*shown, **self._limits)

    @property
    def _limits(self) -> dict[str, int]:
        return {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}

    @property
    def native_box_format(self) -> str | None:
        return known_family(self.family).box_format


def split_box_format(text: str) -> tuple[Path, str]:
    """Path and box format of ``PATH[:norm1000|pixels]``; ValueError names what is unknown."""
    path, _, box_format = text.rpartition(":")
    if not path or Path(text).exists() or not (box_format in BOX_FORMATS or Path(path).exists()):
        return Path(text), "norm1000"
    if box_format not in BOX_FORMATS:
        raise ValueError(f"{text}: unknown subset {box_format!r}; known: {', '.join(BOX_FORMATS)}")
    return Path(path), box_format


def row_in_box_format(row: Row, frame: str, size: Size, seen: Size) -> Row:
    """The row with its boxes and prompt in ``frame``; ``size`` is the stored image's, ``seen`` that
    of the one the model sees. ValueError if they cannot be rewritten.
    """
    stored_in = row.columns.get("frame")
    if not row.has_boxes or stored_in is None or stored_in == frame == "norm1000":
        return row
    problem, solution = in_box_format(
        row.problem, row.solution, stored_in, frame, size=size, to_size=seen
    )
    sides = {"width": seen[0], "height": seen[1]} if frame == "pixels" else {}
    columns = row.columns | {"frame": frame} | sides
    return replace(row, problem=problem, solution=solution, columns=columns)


def in_box_format(
    problem: str, solution: str, from_format: str, to_format: str, *, size: Size, to_size: Size
) -> tuple[str, str]:
    """Prompt and gold solution in ``to_format``. ``size`` is the stored image's, ``to_size`` that
    of the one the model sees. ValueError if they cannot be rewritten.
    """
    if from_format == to_format == "norm1000":
        return problem, solution
    if to_format == "norm1000":
        problem = in_thousandths(problem, size if from_format == "pixels" else None)
    else:
        problem = in_pixels(problem, to_size, size)
    if from_format == to_format and size == to_size:
        return problem, solution

    def convert(box: Box) -> tuple[int, int, int, int]:
        return convert_box(box, from_format, to_format, size=size, to_size=to_size)

    return problem, _converted(solution, convert)


def _converted(solution: str, convert: Callable[[Box], tuple[int, int, int, int]]) -> str:
    """The solution with other numbers in its boxes, and not another character changed.

    The reader itself tells which numbers are a box's: each number of the text is replaced by a
    mark, and the marks that come back in boxes are theirs. ValueError if that, or what is
    written, does not read as it should.
    """
    gold = gold_text(solution)
    before = read_boxes(gold)
    if before is None or None in before.boxes:
        raise ValueError(f"the solution {gold[:80]!r} cannot be rewritten in another box format")
    if not before.boxes:
        return solution
    boxes = [convert(box) for box in before.boxes if box is not None]
    marks = itertools.count(_MARK)
    marked = read_boxes(_NUMBER.sub(lambda _: str(next(marks)), gold))
    numbers: dict[int, int] = {}
    for mark, box in zip(marked.boxes if marked is not None else [], boxes, strict=False):
        numbers.update(zip(map(int, mark or ()), box, strict=False))
    marks = itertools.count(_MARK)
    written = _NUMBER.sub(lambda number: str(numbers.get(next(marks), number[0])), gold)
    after = read_boxes(written)
    same = (boxes, before.confidences, before.labels)
    if after is None or (after.boxes, after.confidences, after.labels) != same:
        raise ValueError(f"the boxes of the solution {gold[:80]!r} cannot be rewritten")
    if not isinstance(solution, str):
        return written
    start, end = answer_span(solution) or (0, len(solution))
    return solution[:start] + solution[start:end].replace(gold, written, 1) + solution[end:]
