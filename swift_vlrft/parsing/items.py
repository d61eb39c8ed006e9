"""Lists of names written by a model as text.

    ["red", "dark blue"]        red; dark blue        red, dark blue

and one name a line all read as two items, in the form in which class names are compared.
"""

import re
from typing import Any

from swift_vlrft.parsing.boxes import unwrapped
from swift_vlrft.parsing.labels import EMPTY_ANSWERS, normalise
from swift_vlrft.parsing.literals import literal_list
from swift_vlrft.parsing.texts import MAX_TEXT

_BETWEEN = re.compile(r"[\n;；]")
_COMMAS = re.compile(r"[,，、]")


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
    return normalise(item) if isinstance(item, str) else ""
