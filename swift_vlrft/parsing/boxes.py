"""Read boxes that a model wrote as text, safely.

    [{'Position': [254, 303, 291, 365], 'Confidence': 0.9, 'label': "dog's bowl"}]
    ```json [{"bbox_2d": ["254", "303", "291", "365"]}] ```
    <|object_ref_start|>dog<|object_ref_end|><|box_start|>(254,303),(291,365)<|box_end|>
    <ref>dog</ref><box>254 303 291 365</box>
    {"boxes": [[254, 303, 291, 365]]}
    254, 303, 291, 365

all read as one box. ``box_2d`` is Google's key and y-first, [y1, x1, y2, x2]; every other spelling
is x-first. Nothing is evaluated and nothing is repaired. Every pass is linear in the text and
bounded by the limits below, since a model in training may write anything.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from swift_vlrft.geometry.boxes import Array, Box, Pair, array_of
from swift_vlrft.parsing.labels import UNREADABLE_LABEL, is_empty_set, normalise
from swift_vlrft.parsing.literals import MAX_DEPTH, NUMBER, groups, literal
from swift_vlrft.parsing.unwrap import MAX_ANSWER, bared

MAX_OPEN_BRACKETS = 4096
"""An answer with more opening brackets, some 2,000 boxes, is not read as boxes."""
MAX_COORDINATE = 10**9
"""Larger coordinates are invalid: their areas would no longer be exact. An int, as most are."""
LISTS = ("boxes", "objects")
"""Keys of an object that holds the list; "labels" and "scores" beside it are lists as long."""


@dataclass(eq=False)
class BoxList:
    """Holds predictions or gold boxes in the order of the text, as parallel lists.

    ``boxes`` holds xyxy numbers in the text's box format, ``None`` for an invalid box, which
    matches nothing but still counts. ``confidences`` holds numbers in [0, 1], else ``None``;
    ``labels`` the normalised label, ``None`` if there is none. ``unread`` counts keys beside boxes
    that hold text and are not read; ``outside`` confidences that are not in [0, 1]; ``matched`` is
    where rewards/matching.py keeps its last result.
    """

    boxes: list[Box | None] = field(default_factory=list)
    confidences: list[float | None] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)
    outside: int = 0
    matched: tuple["BoxList", float, list[Pair]] | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    @cached_property
    def array(self) -> Array:
        """Return the boxes as an array; here and below cached: the list must be complete."""
        return array_of(self.boxes)

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the distinct labels."""
        return frozenset(label for label in self.labels if label is not None)

    def add(self, box: Box | None, confidence: float | None, label: str | None) -> None:
        self.boxes.append(box)
        self.confidences.append(confidence)
        self.labels.append(label)


@lru_cache(maxsize=16)  # the checks of a row ask for its gold several times
def read_boxes(text: str) -> BoxList | None:
    """Return all boxes in ``text``, of all lists: a second guess costs as much as an extra box.

    Empty for the empty set; None if it holds neither, or an empty list beside other things.
    """
    text = without_wrappers(text)
    if is_empty_set(text):
        return BoxList()
    if too_long(text):
        return None
    if len(text) < 1000 and _BARE.fullmatch(text):
        return BoxList([_box(text.rstrip(".").split(","))], [None], [None])
    boxes = BoxList()
    readable = True
    corner: list[Any] | None = None  # the first of (x1,y1),(x2,y2)
    label: str | None = None  # what <|object_ref_start|> named last
    for value in groups(text):
        if type(value) is str:
            label = normalise(value) or None
        elif type(value) is list and len(value) < 3 and is_flat(value):
            if len(value) == 2 and corner is None:
                corner = value
            elif len(value) == 2 or not value:
                readable = readable and bool(value)
                boxes.add(_box([*(corner or ()), *value]), None, label)
                corner = None
            # a lone [1] is prose
        elif type(value) is tuple:  # <box>x1 y1 x2 y2</box>
            boxes.add(_box(list(value)), None, label)
        else:
            count = len(boxes)
            _add(boxes, value, label, 0)
            readable = readable and len(boxes) > count
    if corner is not None:
        boxes.add(None, None, label)
    if boxes.boxes in ([], [None]) and holds_nothing(literal(text), KEYS):
        return BoxList()
    return boxes if boxes.boxes and readable else None


KEYS = ("Position", "bbox_2d", "bbox", "box", "box_2d")
"""The first with a value is read."""
LABELS = ("label", "category", "name")
CLASS_NUMBERS = ("category_id", "class_id", "class", "cls")
"""Keys of a class that is not read; without a label beside them, the class would be lost."""
CONFIDENCES = ("Confidence", "confidence", "score")
_FOUR = rf"{NUMBER}(?:\s*+,\s*+{NUMBER}){{3}}"
_BARE = re.compile(rf"{_FOUR}\.?")
_BOX_TOKENS = re.compile(
    rf"(?P<start><\|box_start\|>)|(?P<end><\|box_end\|>)"
    rf"|<\|begin_of_box\|>\s*+(?P<four>{NUMBER}(?:(?:\s*+,\s*+|\s++){NUMBER}){{3}})"
    r"\s*+<\|end_of_box\|>"
    r"|<\|(?:begin|end)_of_box\|>"
)
_CORNERS = ("x1", "y1", "x2", "y2")
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_READ = {*KEYS, *LISTS, *LABELS, *CONFIDENCES, "labels", "scores", *_CORNERS, *_EDGES}
_REAL = {int, float}
_SCALARS = {int, float, bool, str}


def without_wrappers(text: str) -> str:
    """Return ``text`` in NFKC, without an outer fence and special tokens. Qwen's tokens around
    boxes become ``<box>``, and so do GLM's if four bare numbers stand between them.
    """
    text = bared(text)
    if "<|" in text:
        text = bared(_BOX_TOKENS.sub(_as_tag, text))
    return text


def holds_nothing(value: Any, keys: tuple[str, ...]) -> bool:
    """Return whether a list or object is the empty set: an object whose one list is empty, alone or
    the only object of a list, or the arguments of a tool call that are.
    """
    if type(value) is list and len(value) == 1:
        (value,) = value
    if type(value) is dict and type(value.get("arguments")) is dict:
        value = value["arguments"]
    if type(value) is not dict:
        return False
    lists = [held for held in value.values() if type(held) in (list, dict)]
    return not any(lists) and any(value.get(key) == [] for key in (*keys, *LISTS))


def _as_tag(token: re.Match[str]) -> str:
    if token["four"]:
        return f"<box>{token['four']}</box>"
    return "<box>" if token["start"] else "</box>" if token["end"] else " "


def too_long(text: str) -> bool:
    """Return whether ``text`` is too long to be read as boxes."""
    return len(text) > MAX_ANSWER or (
        len(text) > MAX_OPEN_BRACKETS and sum(map(text.count, "[({<")) > MAX_OPEN_BRACKETS
    )


def _add(boxes: BoxList, value: Any, label: str | None, depth: int) -> None:
    """Add the boxes in ``value``: a list that is not a box gives one prediction for each item."""
    if depth > MAX_DEPTH:
        boxes.add(None, None, label)
    elif type(value) is dict:
        _add_object(boxes, value, label, depth)
    elif type(value) is list and not _is_one_box(value):
        for item in value:
            _add(boxes, item, label, depth + 1)
    else:
        boxes.add(_box(value), None, label)


def is_flat(value: list[Any]) -> bool:
    return _SCALARS.issuperset(map(type, value))


def _is_one_box(values: list[Any]) -> bool:
    """Bare numbers (however many), two corners, or nothing at all; not a list of boxes."""
    if len(values) == 2 and all(type(corner) is list and len(corner) == 2 for corner in values):
        return all(map(is_flat, values))
    return is_flat(values) and (len(values) > 8 or not _holds_text(values))


def _add_object(boxes: BoxList, item: dict[str, Any], label: str | None, depth: int) -> None:
    if "arguments" in item:  # of a tool call
        _add(boxes, arguments(item), label, depth + 1)
        return
    get = item.get
    name = next((v for key in LABELS if (v := get(key)) is not None), None)
    if type(name) is str:
        label = normalise(name) or None
    elif name is not None:
        label = str(name) if type(name) is int else UNREADABLE_LABEL
    for key in item.keys() - _READ:
        if _holds_text(item[key]) or (label is None and key in CLASS_NUMBERS):
            boxes.unread[key] = boxes.unread.get(key, 0) + 1
    position = get("Position") or get("bbox_2d") or get("bbox") or get("box")
    y_first = not position and bool(position := get("box_2d"))
    if not position and (listed := [key for key in LISTS if get(key)]):
        for key in listed:  # {"objects": [{...}, ...]}
            _add(boxes, _with_lists_beside(item, item[key]), label, depth + 1)
        return
    stated = next((value for key in CONFIDENCES if (value := get(key)) is not None), None)
    confidence = as_number(stated)
    box = _box(position or item)
    if y_first and box is not None:
        box = box[1], box[0], box[3], box[2]
    if stated is not None and (confidence is None or not 0.0 <= confidence <= 1.0):
        confidence = None
        boxes.outside += 1
    boxes.add(box, confidence, label)


def _holds_text(value: Any) -> bool:
    """Whether it is a word, or a list with one: a number in quotes is none."""
    items = value if type(value) is list else [value]
    return any(type(item) is str and as_number(item) is None for item in items)


def _with_lists_beside(item: dict[str, Any], boxes: Any) -> Any:
    """The boxes of {"boxes": [[...], ...], "labels": [...], "scores": [...]} as objects."""
    if type(boxes) is not list or _is_one_box(boxes) or {*map(type, boxes)} != {list}:
        return boxes
    beside = {key: item.get(f"{key}s") for key in ("label", "score")}
    fitting = {k: v for k, v in beside.items() if type(v) is list and len(v) == len(boxes)}
    return [{"bbox": box} | {k: v[n] for k, v in fitting.items()} for n, box in enumerate(boxes)]


def arguments(item: dict[str, Any]) -> Any:
    """Return the arguments of a tool call: an object, or its text; None for anything else."""
    held = item["arguments"]
    held = literal(held) if type(held) is str else held
    return held if type(held) is dict and "arguments" not in held else None


def _box(value: Any) -> Box | None:
    """Four numbers, [[four numbers]], [[x1, y1], [x2, y2]], or an object of x1, y1, x2, y2. None if
    the box is invalid: inverted, without area, or beyond MAX_COORDINATE.
    """
    if type(value) is dict:
        names = _CORNERS if "x1" in value else _EDGES
        value = [value.get(name) for name in names]
    for _ in range(2):
        if type(value) is list and len(value) == 1:
            value = value[0]
    if type(value) is list and len(value) == 2 and type(value[0]) is list is type(value[1]):
        value = value[0] + value[1]
    if type(value) is not list or len(value) != 4:
        return None
    if not _REAL.issuperset(map(type, value)):
        value = [number for item in value if (number := as_number(item)) is not None]
        if len(value) != 4:
            return None
    x1, y1, x2, y2 = value
    low, high = -MAX_COORDINATE, MAX_COORDINATE
    # Comparisons with NaN are false, so NaN is invalid here as well.
    if low < x1 < x2 < high and low < y1 < y2 < high and (x2 - x1) * (y2 - y1) > 0:
        return x1, y1, x2, y2
    return None


def as_number(value: Any) -> float | None:
    """A number or numeric string as a float, NaN and infinities, too; None for all else."""
    if type(value) in _REAL or (type(value) is str and "_" not in value):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return None
