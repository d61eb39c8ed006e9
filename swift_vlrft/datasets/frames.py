"""A row's boxes and prompt in another frame: only numbers and the sentence on them change.

    in    "... the bounding boxes (between 0 and 1000, integer) ..."
          [{'Position': [254, 303, 291, 365], 'Confidence': 1}]
    out   "... the bounding boxes (in pixels, x from 0 to 644 and y from 0 to 476, integer) ..."
          [{'Position': [164, 144, 187, 174], 'Confidence': 1}]

for an image that Qwen2.5-VL sees as 644 x 476. What is rewritten is read again, and refused where
it does not say the converted boxes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from swift_vlrft.answers import boxes_or_refusal, gold_text
from swift_vlrft.coordinates import (
    Size,
    capped_size,
    convert_box,
    image_tokens,
    known_family,
    loses_a_side,
    resized_size,
)

_N = r"""\s*["']?(-?\d++(?:\.\d++)?)["']?\s*"""
_BOX = re.compile(
    rf"\[{_N},{_N},{_N},{_N}\]"  # [x1, y1, x2, y2]
    rf"|([(\[]){_N},{_N}([)\]]\s*,?\s*[(\[]){_N},{_N}[)\]]"  # (x1,y1),(x2,y2)
)
_NORM1000 = re.compile(
    r"(?:normali[sz]ed\s+(?:to|into|in|between|within)\s+)?"
    r"(?:(?:in\s+)?(?:the\s+)?range\s+(?:of\s+|from\s+)?)?(?:between\s+|from\s+|within\s+|in\s+)?"
    r"(?:[\[(]\s*0\s*[,-]\s*1000\s*[\])]|\b0\s*(?:-|–|to|and)\s*1000\b)"
)
_PIXELS = re.compile(r"in pixels, x from 0 to \d+ and y from 0 to \d+")


@dataclass(frozen=True)
class View:
    """How a model sees pictures: its family, and the limits that the command sets."""

    family: str
    min_pixels: int
    max_pixels: int
    picture_pixels: int | None = None
    """ms-swift's flag ``--max_pixels``, which scales the picture before the family's resize."""

    def size(self, width: int, height: int) -> Size:
        width, height = capped_size(width, height, self.picture_pixels)
        return resized_size(
            self.family, width, height, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )

    def problem(self, width: int, height: int) -> str | None:
        """Why the model's processor does not take a picture of that size; None where it does."""
        try:
            self.size(width, height)
        except ValueError as error:
            return str(error)
        width, height = capped_size(width, height, self.picture_pixels)
        if not loses_a_side(self.family, width, height, max_pixels=self.max_pixels):
            return None
        return (
            f"an image of {width} x {height} pixels is left with a side of 0 pixels under "
            f"max_pixels {self.max_pixels}; raise MAX_PIXELS, or cut the image"
        )

    def tokens(self, width: int, height: int) -> int:
        """With the two that mark the image's begin and end."""
        width, height = capped_size(width, height, self.picture_pixels)
        limits = {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}
        return 2 + image_tokens(self.family, width, height, **limits)

    @property
    def native_frame(self) -> str:
        return known_family(self.family).native_frame


def in_frame(
    problem: str, solution: str, from_frame: str, to_frame: str, *, size: Size, to_size: Size
) -> tuple[str, str]:
    """Prompt and gold solution in ``to_frame``. ``size`` is the stored picture's, ``to_size`` that
    of the one the model sees. ValueError where the boxes cannot be rewritten.
    """
    if from_frame == to_frame and (to_frame == "norm1000" or size == to_size):
        if to_frame == "norm1000":
            return problem, solution
        return _stated(problem, to_frame, to_size), solution
    gold = gold_text(solution)
    before = boxes_or_refusal(gold)
    if before is None or any(box is None for box in before.boxes):
        raise ValueError(f"the solution {gold[:80]!r} cannot be rewritten in another frame")
    wanted = [
        convert_box(box, from_frame, to_frame, size=size, to_size=to_size)
        for box in before.boxes
        if box is not None
    ]
    if wanted:
        left = iter(wanted)
        written = _BOX.sub(lambda found: _numbers(found, next(left, (0, 0, 0, 0))), gold)
        after = boxes_or_refusal(written)
        if after is None or after.boxes != wanted:
            raise ValueError(f"the boxes of the solution {gold[:80]!r} cannot be rewritten")
        solution = solution.replace(gold, written) if isinstance(solution, str) else written
    return _stated(problem, to_frame, to_size), solution


def _numbers(found: re.Match[str], box: tuple[int, int, int, int]) -> str:
    if found[5]:
        close = found[0][-1]
        return f"{found[5]}{box[0]},{box[1]}{found[8]}{box[2]},{box[3]}{close}"
    return "[" + ", ".join(map(str, box)) + "]"


def _stated(problem: str, frame: str, size: Size) -> str:
    """The prompt saying the frame: in the place where it said one, else in a sentence more."""
    if frame == "pixels":
        here = f"in pixels, x from 0 to {size[0]} and y from 0 to {size[1]}"
        made, count = _NORM1000.subn(here, problem)
        if not count:
            made, count = _PIXELS.subn(here, problem)
    else:
        here = "between 0 and 1000"
        made, count = _PIXELS.subn(here, problem)
        if not count and _NORM1000.search(problem):
            return problem
    return made if count else f"{problem}\nCoordinates are whole numbers {here}."


def without_frame(problem: str) -> str:
    """The prompt without what it says of the frame: the same in every frame."""
    return _PIXELS.sub("", _NORM1000.sub("", problem.split("\nCoordinates are whole numbers ")[0]))


def stated_size(problem: str) -> Size | None:
    """The size that a prompt in pixels names."""
    found = re.search(r"in pixels, x from 0 to (\d+) and y from 0 to (\d+)", problem)
    return (int(found[1]), int(found[2])) if found else None
