"""Boxes written by a model as text, read safely.

    [{'Position': [254, 303, 291, 365], 'Confidence': 0.9, 'label': "dog's bowl"}]
    ```json [{"bbox_2d": ["254", "303", "291", "365"]}] ```
    <|object_ref_start|>dog<|object_ref_end|><|box_start|>(254,303),(291,365)<|box_end|>

all read as one box: JSON, a Python literal, fenced or in prose, bare corners. Nothing is evaluated
and nothing is repaired: brackets that are never closed are not a list. Every pass is linear in the
text, which a model under training writes, so each limit below has a number.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from swift_vlrft.boxes import Box, BoxIndex
from swift_vlrft.labels import UNREADABLE_LABEL, normalise
from swift_vlrft.literals import MAX_DEPTH, groups

_BOX_TOKENS = re.compile(r"<\|(?:begin_of_box|end_of_box|box_start|box_end)\|>")
_REAL = {int, float}
_SCALARS = {int, float, bool, str}

MAX_ANSWER = 100_000
"""A longer answer, in characters, is not read as boxes and scores 0: some 30,000 tokens."""
MAX_OPEN_BRACKETS = 4096
"""Nor is one with more opening brackets: some 2,000 boxes."""
MAX_COORDINATE = 1e9
"""Coordinates beyond it are invalid: their areas would no longer be exact."""


@dataclass(eq=False)
class BoxList:
    """Predictions or gold boxes in the order of the text, as parallel lists.

    ``boxes`` holds xyxy numbers, x right and y down, in whatever frame the text uses; ``None`` is
    an invalid box (not four finite numbers, inverted, or without area): it matches nothing and
    still counts. ``confidences`` holds what was stated in [0, 1], else ``None``; ``labels`` the
    normalised label, ``None`` where none is given.
    """

    boxes: list[Box | None] = field(default_factory=list)
    confidences: list[float | None] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.boxes)

    @cached_property
    def index(self) -> BoxIndex:
        """For the search of overlaps; a list must not grow after it is asked for."""
        return BoxIndex(self.boxes)

    def add(
        self, box: Box | None, confidence: float | None = None, label: str | None = None
    ) -> None:
        self.boxes.append(box)
        self.confidences.append(confidence)
        self.labels.append(label)


def read_boxes(text: str) -> BoxList | None:
    """Every box that ``text`` states; None where it holds neither a list, an object nor a bare box.

    Several lists are read as one, so a second guess costs what an extra box costs. Of an object's
    keys the first with a value is read, in the order Position, bbox_2d, bbox, box; Confidence,
    score; label, category, name. "No Objects" is the caller's business.
    """
    if too_long(text):
        return None
    if "<|" in text:
        text = _BOX_TOKENS.sub(" ", text)
    found = BoxList()
    readable = False
    corner: list[Any] | None = None  # the first of (x1,y1),(x2,y2)
    label: str | None = None  # what <|object_ref_start|> named last
    for value in groups(text):
        if type(value) is str:
            label = normalise(value) or None
        elif type(value) is dict:
            _add_object(found, value, label, 0)
            readable = True
        elif _is_flat(value) and len(value) < 3:
            if len(value) == 2 and corner is not None:
                found.add(_box([*corner, *value]), None, label)
                corner, readable = None, True
            elif len(value) == 2:
                corner = value
            elif not value:
                readable = True  # an empty list; a lone [1] is prose
        else:
            _add_list(found, value, label, 0)
            readable = True
    if corner is not None:
        found.add(None, None, label)
        readable = True
    return found if readable else None


def too_long(text: str) -> bool:
    """Whether ``text`` is beyond what is read as boxes."""
    return len(text) > MAX_ANSWER or (
        len(text) > MAX_OPEN_BRACKETS and sum(map(text.count, "[({<")) > MAX_OPEN_BRACKETS
    )


def _is_flat(value: list[Any]) -> bool:
    return _SCALARS.issuperset(map(type, value))


def _add_list(found: BoxList, values: list[Any], label: str | None, depth: int) -> None:
    """One box where ``values`` is one, else one prediction for each item."""
    first = values[0] if values else None
    if depth > MAX_DEPTH:
        found.add(None)
    elif type(first) is dict or not _is_one_box(values):
        for item in values:
            if type(item) is dict:
                _add_object(found, item, label, depth)
            elif type(item) is list:
                _add_list(found, item, label, depth + 1)
            else:
                found.add(None, None, label)
    else:
        found.add(_box(values), None, label)


def _is_one_box(values: list[Any]) -> bool:
    """Bare numbers (however many), two corners, or nothing at all; not a list of boxes."""
    if len(values) == 2 and all(type(corner) is list and len(corner) == 2 for corner in values):
        return all(map(_is_flat, values))
    if not _is_flat(values):
        return False
    return len(values) > 8 or all(type(v) is not str or _number(v) is not None for v in values)


def _add_object(found: BoxList, item: dict[str, Any], label: str | None, depth: int) -> None:
    get = item.get
    position = get("Position") or get("bbox_2d") or get("bbox") or get("box")
    if not position and (wrapped := [v for v in item.values() if _holds_objects(v)]):
        for value in wrapped:  # {"objects": [{...}, ...]}
            _add_list(found, value, label, depth + 1)
        return
    confidence = get("Confidence")
    if confidence is None:
        confidence = get("score")
    if type(confidence) is not float:
        confidence = _number(confidence)
    if confidence is not None and not 0.0 <= confidence <= 1.0:
        confidence = None
    stated = get("label")
    if stated is None and (stated := get("category")) is None:
        stated = get("name")
    if type(stated) is str:
        label = normalise(stated) or None
    elif stated is not None:
        label = str(stated) if type(stated) is int else UNREADABLE_LABEL
    found.add(_box(position), confidence, label)


def _holds_objects(value: Any) -> bool:
    return type(value) is list and bool(value) and type(value[0]) is dict


def _box(value: Any) -> Box | None:
    """Four numbers, [[four numbers]] or [[x1, y1], [x2, y2]]; None where the box is invalid."""
    if type(value) is not list:
        return None
    if len(value) != 4 or not _REAL.issuperset(map(type, value)):
        value = _four_numbers(value)
        if value is None:
            return None
    x1, y1, x2, y2 = value
    # Comparisons with NaN are false, so it is refused here as well.
    if (
        -MAX_COORDINATE < x1 < x2 < MAX_COORDINATE
        and -MAX_COORDINATE < y1 < y2 < MAX_COORDINATE
        and (x2 - x1) * (y2 - y1) > 0.0
    ):
        return x1, y1, x2, y2
    return None


def _four_numbers(value: list[Any]) -> list[float] | None:
    for _ in range(2):
        if len(value) == 1 and type(value[0]) is list:
            value = value[0]
    if len(value) == 2 and type(value[0]) is list and type(value[1]) is list:
        value = value[0] + value[1]
    if len(value) != 4:
        return None
    numbers = [number for item in value if (number := _number(item)) is not None]
    return numbers if len(numbers) == 4 else None


def _number(value: Any) -> float | None:
    """A number or numeric string as a float, NaN and infinities too; None for the rest, bools
    too.
    """
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is int or (kind is str and "_" not in value):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None
