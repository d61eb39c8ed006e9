"""Read points that a model wrote as text, safely.

    [412, 88]        (412, 88)        412, 88        [[412, 88], [10, 20]]
    [{"point_2d": [412, 88], "label": "dog"}]        {"action": "click", "coordinate": [412, 88]}
    <point x="412" y="88" alt="dog">dog</point>      <point>412 88</point>      click(412, 88)
    [{"point": [88, 412]}]

are (412, 88) each. ``point`` is Google's key and y-first, [y, x]; every other form is x-first. A
box is read as a point that cannot be read. Brackets, fences and limits are those of boxes.py.
"""

import re
from typing import Any

from swift_vlrft.parsing import boxes
from swift_vlrft.parsing.labels import is_empty_set
from swift_vlrft.parsing.literals import MAX_DEPTH, NUMBER, groups, literal

Point = tuple[float, float]

KEYS = ("point_2d", "coordinate", "point")
"""The first that an object has is read."""
LISTS = ("points", "objects", "boxes")
"""Keys of an object that holds the list."""

_BARE = re.compile(rf"{NUMBER}\s*+,\s*+{NUMBER}\.?")
_TAG = re.compile(r"<point\b([^<>]*+)>([^<>]*+)")
_ATTRIBUTE = re.compile(r"""([A-Za-z_]\w*+)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'/]++))""")
_CLICK = re.compile(
    rf"\bclick\(\s*+(?:x\s*+=)?\s*+({NUMBER})\s*+,\s*+(?:y\s*+=)?\s*+({NUMBER})\s*+(?:,[^()]*+)?\)"
)
# The two corners of a box in Qwen's or InternVL's tokens are no two points.
_BOX = re.compile(
    rf"(?:<\|box_start\|>|<box>)\s*+\({NUMBER}\s*+,\s*+{NUMBER}\)\s*+,?\s*+"
    rf"\({NUMBER}\s*+,\s*+{NUMBER}\)\s*+(?:<\|box_end\|>|</box>)"
)


def read_points(text: str) -> list[Point | None] | None:
    """Return every point in ``text``, of several lists too. None in the list is a point that cannot
    be read. Empty for the empty set; None if the text holds neither.
    """
    text = boxes.without_wrappers(text)
    if is_empty_set(text):
        return []
    if boxes.too_long(text):
        return None
    if len(text) < 1000 and _BARE.fullmatch(text):
        return [_point(text.rstrip(".").split(","))]
    points: list[Point | None] = []
    readable = True
    if "box" in text:
        text, count = _BOX.subn(" ", text)
        points += [None] * count
    if "<point" in text:
        text = _TAG.sub(lambda tag: _of_tag(tag, points), text).replace("</point>", " ")
    for value in groups(_CLICK.sub(r"(\1, \2)", text)):
        if type(value) is str or (type(value) is list and len(value) == 1 and boxes.is_flat(value)):
            continue  # a name; a lone [1] is prose
        found = _points(list(value) if type(value) is tuple else value)
        readable = readable and value != [] and bool(found)
        points += found
    if points in ([], [None]) and boxes.holds_nothing(
        literal(text), (*KEYS, "points", *boxes.KEYS)
    ):
        return []
    return points if points and readable else None


def _of_tag(tag: re.Match[str], points: list[Point | None]) -> str:
    """Add the point of a tag; what is left to be read."""
    said = {name.lower(): a or b or c for name, a, b, c in _ATTRIBUTE.findall(tag[1])}
    if not said and any(bracket in tag[2] for bracket in "[("):
        return tag[2]
    inside = tag[2].replace(",", " ").split()
    points.append(_point([said.get("x"), said.get("y")] if said else inside))
    return " "


def _points(value: Any, y_first: bool = False, depth: int = 0) -> list[Point | None]:
    """The points in ``value``: a list that is not a point gives one for each item."""
    if depth > MAX_DEPTH:
        return [None]
    if type(value) is list and not _is_one_point(value):
        return [point for item in value for point in _points(item, y_first, depth + 1)]
    if type(value) is not dict:
        point = _point(value)
        return [point[::-1] if point and y_first else point]
    if "arguments" in value:  # of a tool call
        return _points(boxes.arguments(value), False, depth + 1)
    key = next((key for key in KEYS if value.get(key) is not None), None)
    if key is not None:
        return _points(value[key], key == "point", depth + 1)
    if listed := [value[key] for key in LISTS if value.get(key)]:
        return [point for one in listed for point in _points(one, False, depth + 1)]
    return [_point([value.get("x"), value.get("y")])]


def _is_one_point(values: list[Any]) -> bool:
    """Numbers, however many, or nothing at all; not a list of points."""
    return boxes.is_flat(values) and {*map(boxes.as_number, values)} != {None}


def _point(value: Any) -> Point | None:
    """Two numbers within boxes.MAX_COORDINATE, or None."""
    if type(value) is not list or len(value) != 2:
        return None
    x, y = map(boxes.as_number, value)
    # Comparisons with NaN are false, so NaN is invalid here as well.
    if x is None or y is None or not max(abs(x), abs(y)) < boxes.MAX_COORDINATE:
        return None
    return x, y
