"""Read lists of names that a model or a solution states: JSON, Python, or text.

["red", "blue"]      red, blue      1. red\\n2. blue      red | blue      red and blue
cat → dog, then bird                 in an order
"""

import json
import re
from typing import Any

from swift_vlrft.parsing.boxes import holds_nothing, without_wrappers
from swift_vlrft.parsing.labels import is_empty_set, normalise
from swift_vlrft.parsing.literals import groups, literal
from swift_vlrft.parsing.texts import MAX_TEXT
from swift_vlrft.parsing.unwrap import unwrapped

_BETWEEN = re.compile(r"[\n;；]")
_COMMAS = re.compile(r"[,，、]")
_JOINS = re.compile(r"\s*[|&]\s*|\s+and\s+|(?<=\S)\s?和\s?(?=\S)")
_THEN = re.compile(r"→|[-=]?>|[,;]?\s(?:and\s+)?then\b", re.IGNORECASE)
_BULLET = re.compile(r"\s*[-•‣◦▪●·–—*]\s+")
_NUMBERED = re.compile(r"\(?(\d{1,3}|[a-z])[.):、]+(?:\s+|(?=\D))", re.IGNORECASE)


def read_items(text: str, *, ordered: bool = False) -> list[str] | None:
    """Return the items of a list; empty for the empty set; None for text without any.

    The text is a JSON or Python list, else parted at newlines and semicolons, else at commas, and
    in an order at arrows; None, too, if it is too long. An item that is no name (a list, a bool) is
    "", which equals none.
    """
    if len(text) > MAX_TEXT:
        return None
    text = without_wrappers(text)
    if is_empty_set(text) or holds_nothing(literal(text), ()):
        return []
    text = unwrapped(text)
    listed = literal(text)
    if not isinstance(listed, list):
        if ordered:
            text = _THEN.sub(";" if _BETWEEN.search(text) else ",", text)
        between = _BETWEEN if _BETWEEN.search(text) else _COMMAS
        listed = [part for part in between.split(text) if part.strip()] or None
    return None if listed is None else [_name(item) for item in listed]


def _name(item: Any) -> str:
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        item = json.dumps(item)
    if not isinstance(item, str):
        return ""
    bullet = _BULLET.match(item)
    return normalise(item[bullet.end() :] if bullet else item)


def read_gold_items(text: str, *, ordered: bool = False) -> list[str] | None:
    """Return the items of a solution. In text, lines that are numbered or lettered lose their
    marks, and ``|``, ``&`` and a final "and" part items. None for a JSON object.
    """
    if text.lstrip().startswith("{") and type(next(groups(text), None)) is dict:
        return None
    items = read_items(text, ordered=ordered)
    if not items or literal(unwrapped(text)) is not None:
        return items
    *first, last = items
    parts = [part for part in re.split(rf"^and |{_JOINS.pattern}", last) if part]
    items = [part for item in first for part in re.split(r"\s*[|&]\s*", item)] + parts
    marks = [_NUMBERED.match(item) for item in items]
    counted = [str(n) for n in range(1, len(items) + 1)]
    lettered = [chr(ord("a") + n) for n in range(min(26, len(items)))]
    if [mark and mark[1] for mark in marks] in (counted, lettered):
        names = [normalise(_NUMBERED.sub("", item, count=1)) for item in items]
        return names if all(names) else items
    return items


def meant(items: list[str], gold: list[str]) -> list[str]:
    """Return the items of an answer as a reader takes them who knows the gold items.

    An item that is none of them loses its number, "1. red", and "and" in front of it; "red and
    blue" is two items if one of them is a gold item.
    """
    known = set(gold)
    return [name for item in items for name in ([item] if item in known else _meant(item, known))]


def _meant(item: str, known: set[str]) -> list[str]:
    match = _NUMBERED.match(item)
    bare = normalise(item[match.end() :]) if match else item
    bare = bare if bare in known else bare.removeprefix("and ")
    if bare in known:
        return [bare]
    parts = [part for part in _JOINS.split(bare) if part]
    return parts if not known.isdisjoint(parts) else [item]
