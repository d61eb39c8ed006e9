"""Read spans of time that a model wrote as text: start and end in seconds.

    12.5 to 18.2        12.5s - 18.2s        from 12.5 to 18.2 seconds        [12.5, 18.2]
    00:12.5 --> 00:18.2        {"start": 12.5, "end": 18.2}

are the box (12.5, 0, 18.2, 1) each, as wide as it lasts. Several are a list, or stand apart by ";",
",", "and" or new lines. They are the whole answer, after the one unwrapping of short answers:
no prose beside them.
"""

import re
from typing import Any

from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.boxes import too_long
from swift_vlrft.parsing.literals import literal
from swift_vlrft.parsing.unwrap import unwrapped

_TIME = r"(?:(?:\d{1,3}:)?\d{1,3}:)?\d{1,9}(?:\.\d{0,9})?"
_UNIT = r"(?:\s?(?:s|secs?|seconds?|秒)(?![a-z]))?"
_TO = r"\s*(?:-->|[-\u2013\u2014~\u2192]|\bto\b|到|至)\s*"
_SPAN = re.compile(
    rf"(?:from\s+)?(?P<start>{_TIME}){_UNIT}{_TO}(?P<end>{_TIME}){_UNIT}", re.IGNORECASE
)
_NEXT = re.compile(r"\s*(?:[;,]|\band\b|\n|$)\s*(?:and\s+)?", re.IGNORECASE)


def read_spans(text: str) -> list[Box | None] | None:
    """Return every span in ``text``. None in the list is a span that cannot be one: its end is not
    behind its start. None if the text holds no spans, or anything beside them.
    """
    if too_long(text):
        return None
    text = unwrapped(text)
    if text[:1] in ("[", "{", "("):
        apart = "[" + re.sub(r"\s*(?:;|,?\s*\n)\s*", ",", text) + "]"  # lists without one around
        return _listed(literal(text) or literal(apart))
    spans: list[Box | None] = []
    position = 0
    while position < len(text):
        found = _SPAN.match(text, position)
        after = _NEXT.match(text, found.end()) if found else None
        if found is None or after is None or (after[0].strip() and after.end() == len(text)):
            return None
        spans.append(_span(found["start"], found["end"]))
        position = after.end()
    return spans or None


def _listed(value: Any, depth: int = 0) -> list[Box | None] | None:
    """The spans of a list or object; None if it is neither a span nor a list of spans."""
    if isinstance(value, dict):
        return [_span(value["start"], value["end"])] if {"start", "end"} <= value.keys() else None
    if not isinstance(value, list) or not value or depth > 2:
        return None
    found = [m for item in value if isinstance(item, str) and (m := _SPAN.fullmatch(item))]
    if len(found) == len(value):
        return [_span(span["start"], span["end"]) for span in found]
    if not any(isinstance(item, list | dict) for item in value):
        return [_span(*value)] if len(value) == 2 else None
    spans: list[Box | None] = []
    for item in value:
        spans += _listed(item, depth + 1) or [None]
    return spans


def _span(start: Any, end: Any) -> Box | None:
    of, to = _seconds(start), _seconds(end)
    return (of, 0.0, to, 1.0) if of is not None and to is not None and of < to else None


def _seconds(value: Any) -> float | None:
    """The seconds of a number, of its text with or without a unit, or of a clock."""
    if isinstance(value, str):
        found = re.fullmatch(rf"({_TIME}){_UNIT}", value.strip(), re.IGNORECASE)
        parts = [float(part) for part in found[1].split(":")] if found else []
        if not parts or any(part >= 60 for part in parts[1:]):
            return None
        return float(sum(part * 60.0**n for n, part in enumerate(reversed(parts))))
    return float(value) if type(value) in (int, float) and 0 <= value < 1e9 else None
