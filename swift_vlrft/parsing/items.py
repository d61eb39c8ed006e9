"""Lists of names written by a model as text.

    ["red", "dark blue"]        red; dark blue        red, dark blue

and one name a line all read as two items, in the form in which class names are compared; so do, if
these are the gold items, "1. red" and "2. dark blue" on two lines, and "red and dark blue".
"""

import re
from typing import Any

from swift_vlrft.parsing.boxes import unwrapped
from swift_vlrft.parsing.labels import EMPTY_ANSWERS, normalise
from swift_vlrft.parsing.literals import groups, literal_list
from swift_vlrft.parsing.texts import MAX_TEXT

_BETWEEN = re.compile(r"[\n;；]")
_COMMAS = re.compile(r"[,，、]")
_BULLET = re.compile(r"\s*[•‣◦▪●·–—]\s+")
_SIGN = re.compile(r"\s*[-\u2212](?=\.?\d)")
MOST_COMMAS = 8
"""A gold name with more is not put together again from the parts of an answer."""
_NUMBERED = re.compile(r"(\d{1,3})[.):、]+(?:\s+|(?=\D))")


def read_items(text: str) -> list[str] | None:
    """The items of a JSON or Python list, else of text between newlines and semicolons, else
    between commas; empty for "No Objects", ``[]`` or "None"; None for text without any, or longer
    than ``MAX_TEXT``.

    An item that is no name (a list, an object, a bool, punctuation alone) is "", which equals none.
    """
    text = unwrapped(text)
    if len(text) > MAX_TEXT:
        return None
    if len(text) < 64 and normalise(text) in EMPTY_ANSWERS:
        return []
    listed = literal_list(text)
    if listed is None:
        between = _BETWEEN if _BETWEEN.search(text) else _COMMAS
        listed = [part for part in between.split(text) if part.strip()] or None
    if listed is None:
        return None
    return [_name(item) for item in listed]


def _name(item: Any) -> str:
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        item = str(item)
    if not isinstance(item, str):
        return ""
    if (bullet := _BULLET.match(item)) is not None:
        item = item[bullet.end() :]
    # A class name loses its dashes, but -5 is not 5.
    sign = _SIGN.match(item)
    return f"-{normalise(item[sign.end() :])}" if sign else normalise(item)


def read_gold_items(text: str) -> list[str] | None:
    """The items of a solution: distinct ones that are counted, "1. red", "2. blue", without their
    numbers, and the last one without "and" in front. None for a JSON object, too.
    """
    if text.lstrip().startswith("{") and type(next(groups(text), None)) is dict:
        return None
    items = read_items(text)
    if not items or len(items) < 2:
        return items
    last = items[-1].removeprefix("and ")
    if items.count(items[-1]) == 1 and last not in items:
        items[-1] = last
    counted = [int(found[1]) if (found := _NUMBERED.match(item)) else 0 for item in items]
    names = [normalise(_NUMBERED.sub("", item, 1)) for item in items]
    in_order = counted == [*range(1, len(items) + 1)]
    return names if in_order and len({*items, *names}) == 2 * len(items) else items


def meant(items: list[str], gold: list[str]) -> list[str]:
    """The items of an answer as a reader takes them who knows the gold items.

    An item that is none of them loses its number, "1. red", and "and" in front of it; "red and
    blue" is two items if one of them is a gold item, and "Paris" before "France" one if the gold
    holds "Paris, France". So a further item changes nothing of the others.
    """
    known = set(gold)
    names = ([item] if item in known else _meant(item, known) for item in _joined(items, known))
    return [name for found in names for name in found]


def _joined(items: list[str], known: set[str]) -> list[str]:
    """Items that a comma parted, as one where the gold has them so."""
    whole = {name.replace(", ", ","): name for name in known if "," in name}
    most = min(max((name.count(",") for name in whole), default=0), MOST_COMMAS) + 1
    joined: list[str] = []
    start = 0
    while start < len(items):
        parts = 1 if items[start] in known else min(most, len(items) - start)
        while parts > 1 and ",".join(items[start : start + parts]) not in whole:
            parts -= 1
        name = ",".join(items[start : start + parts])
        joined.append(whole[name] if parts > 1 else items[start])
        start += parts
    return joined


def _meant(item: str, known: set[str]) -> list[str]:
    bare = item
    if (found := _NUMBERED.match(item)) is not None:
        bare = normalise(item[found.end() :])
    bare = bare if bare in known else bare.removeprefix("and ")
    if bare in known:
        return [bare]
    parts = bare.split(" and ")
    return parts if not known.isdisjoint(parts) else [item]
