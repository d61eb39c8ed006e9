"""Boxes written by a model as text, read safely.

    [{'Position': [254, 303, 291, 365], 'Confidence': 0.9, 'label': "dog's bowl"}]
    ```json [{"bbox_2d": ["254", "303", "291", "365"]}] ```
    <|object_ref_start|>dog<|object_ref_end|><|box_start|>(254,303),(291,365)<|box_end|>
    <ref>dog</ref><box>254 303 291 365</box>
    {"boxes": [[254, 303, 291, 365]]}
    254, 303, 291, 365

all read as one box: JSON, a Python literal, fenced or in prose, bare corners. ``box_2d`` is
Google's key and y-first, [y1, x1, y2, x2]; every other spelling is x-first. Nothing is evaluated
and nothing is repaired: brackets that are never closed are not a list. Every pass is linear in the
text, which a model under training writes, so each limit below has a number.
"""

import re
from typing import Any

from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.box_json import read_json_boxes
from swift_vlrft.parsing.box_list import BoxList, valid_box
from swift_vlrft.parsing.labels import REFUSALS, UNREADABLE_LABEL, normalise
from swift_vlrft.parsing.literals import MAX_DEPTH, NUMBER, groups

_FOUR = rf"{NUMBER}(?:\s*+,\s*+{NUMBER}){{3}}"
_BARE = re.compile(rf"{_FOUR}\.?")
"""The whole answer, in a line of its own: 254, 303, 291, 365."""
_BOX_TOKENS = re.compile(
    rf"(?P<start><\|box_start\|>)|(?P<end><\|box_end\|>)"
    rf"|<\|begin_of_box\|>\s*+(?P<four>{_FOUR})\s*+<\|end_of_box\|>"
    r"|<\|(?:begin|end)_of_box\|>"
)
_FENCE = re.compile(r"`+(?:[A-Za-z]*+[ \t]*+\n|(?:json|python)\b)?")
_REAL = {int, float}
_SCALARS = {int, float, bool, str}
LISTS = ("boxes", "objects")
"""Keys of an object that holds the list."""

MAX_ANSWER = 100_000
"""A longer answer, in characters, is not read as boxes and scores 0: some 30,000 tokens."""
MAX_OPEN_BRACKETS = 4096
"""Nor is one with more opening brackets: some 2,000 boxes."""


def read_boxes(text: str) -> BoxList | None:
    """Every box that ``text`` states; None where it holds neither a list, an object nor a bare box.

    Several lists are read as one, so a second guess costs what an extra box costs. Of an object's
    keys the first with a value is read, in the order Position, bbox_2d, bbox, box, box_2d;
    Confidence, score; label, category, name. "No Objects" is the caller's business.
    """
    text = unwrapped(text)
    if len(text) <= MAX_ANSWER:
        in_json = read_json_boxes(text)  # what a trained model writes nearly always
        if in_json is not None and len(in_json) <= MAX_OPEN_BRACKETS // 2:
            return in_json
    if too_long(text):
        return None
    if len(text) < 1000 and _BARE.fullmatch(text):
        return BoxList([_box(text.rstrip(".").split(","))], [None], [None])
    found = BoxList()
    readable = False
    corner: list[Any] | None = None  # the first of (x1,y1),(x2,y2)
    label: str | None = None  # what <|object_ref_start|> named last
    for value in groups(text):
        if type(value) is str:
            label = normalise(value) or None
        elif type(value) is tuple:  # <box>x1 y1 x2 y2</box>
            found.add(_box(list(value)), None, label)
            readable = True
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


def unwrapped(text: str) -> str:
    """``text`` without a fence around all of it and without the tokens that GLM and Qwen put around
    boxes; Qwen's become ``<box>``, and so do GLM's where four bare numbers stand between them.
    """
    if "<" in text and "<|" in text:  # looking for one character is many times faster
        text = _BOX_TOKENS.sub(_as_tag, text).strip()
    if text[:1] == "`" and (fence := _FENCE.match(text)):
        text = text[fence.end() :].rstrip("`").strip()
    return text


def _as_tag(token: re.Match[str]) -> str:
    if token["four"]:
        return f"<box>{token['four']}</box>"
    return "<box>" if token["start"] else "</box>" if token["end"] else " "


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
    stated = get("label")
    if stated is None and (stated := get("category")) is None:
        stated = get("name")
    if type(stated) is str:
        label = normalise(stated) or None
    elif stated is not None:
        label = str(stated) if type(stated) is int else UNREADABLE_LABEL
    position = get("Position") or get("bbox_2d") or get("bbox") or get("box")
    y_first = not position and bool(position := get("box_2d"))
    if not position and (held := [v for k, v in item.items() if k in LISTS or _holds_objects(v)]):
        for value in held:  # {"objects": [{...}, ...]}
            _add_held(found, value, label, depth + 1)
        return
    confidence = get("Confidence")
    if confidence is None:
        confidence = get("score")
    if type(confidence) is not float:
        confidence = _number(confidence)
    if confidence is not None and not 0.0 <= confidence <= 1.0:
        confidence = None
    box = _box(position)
    if y_first and box is not None:
        box = box[1], box[0], box[3], box[2]
    found.add(box, confidence, label)


def _add_held(found: BoxList, value: Any, label: str | None, depth: int) -> None:
    """What stands under ``boxes`` or ``objects``: a list, one object, or nothing at all."""
    if type(value) is dict and depth <= MAX_DEPTH:
        _add_object(found, value, label, depth)
    elif type(value) is list and value:
        _add_list(found, value, label, depth)
    elif value and not (type(value) is str and normalise(value) in REFUSALS):
        found.add(None, None, label)


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
    return valid_box(x1, y1, x2, y2)


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
