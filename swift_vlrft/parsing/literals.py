"""Parse lists and objects in a model's text without evaluating any of it.

    "Sure: [{'a': (1, 2), 'ok': True}] and (3,4) and <box>5 6</box>"

reads as [{'a': [1, 2], 'ok': True}], ['3', '4'] and ('5', '6').

A Python literal is rewritten as JSON first, token by token. Tuples become lists. Brackets that are
never closed end the reading.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

MAX_DEPTH = 32
"""Deeper nesting is not read."""
MAX_PROSE_BRACKETS = 64
"""After this many bracketed texts that are not lists (prose), the rest is not read."""

NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"
# No possessive groups in these expressions: before 3.11.5 Python goes on behind a part of one
# that failed (python/cpython#101955).
_STRING = r""""[^"\\]*+(?:\\.[^"\\]*+)*"|'[^'\\]*+(?:\\.[^'\\]*+)*'"""
# What may start something to read, outside any list: a list, an object, bare numbers in other
# brackets, a box without brackets in tags, the name of the boxes that follow.
_START = re.compile(
    rf"""(?P<list>\[)|(?P<object>\{{(?=\s*+["']))
    |[({{<]\s*+(?P<numbers>{NUMBER}(?:\s*+,\s*+{NUMBER})*)\s*+,?\s*+[)}}>]
    |<box>\s*+(?P<box>[^][<>(){{}}\s][^][<>(){{}}]*+)</box>
    |<\|object_ref_start\|>(?P<name>[^<]*+)<\|object_ref_end\|>|<ref>(?P<ref>[^<]*+)</ref>""",
    re.VERBOSE,
)
# Inside a list: brackets and strings. A string begins only where a value or key may, so that the
# apostrophe of "don't" opens none.
_INSIDE = re.compile(rf"""[\[({{,:]\s*+(?:{_STRING})|[\[\](){{}}]""", re.DOTALL)
_PYTHON = re.compile(
    rf"""(?P<string>{_STRING})|(?P<unclosed>["'])|(?P<open>\()|(?P<close>,?\s*+\))|(?P<comma>,\s*+(?=[\]}}]))
    |(?P<word>\b(?:True|False|None|inf|Infinity)\b|-?\b[nN]a[nN]\b)
    |(?P<number>(?<![\w.])(?:\+(?=[\d.])|(?=-?\.\d))-?+{NUMBER}|(?<![\w.])-?\d++\.(?!\d))""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[\\/bfnrt\"])|\\.|\"", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_WORDS |= {"inf": "Infinity", "Infinity": "Infinity"}
_CLOSES = {"]": "[", ")": "(", "}": "{"}
_decoder = json.JSONDecoder(strict=False)


def groups(text: str) -> Iterator[Any]:
    """Yield lists, objects and bare number groups of ``text`` in order. A ``str`` names those after
    it, a ``tuple`` is the content of a ``<box>`` without brackets.
    """
    as_json = with_json_quotes(text)
    position = prose = 0
    while (start := _START.search(text, position)) is not None:
        kind = start.lastgroup
        position = start.end()
        if kind == "numbers":
            yield start["numbers"].split(",")
        elif kind == "box":
            yield tuple(start["box"].replace(",", " ").split())
        elif kind in ("name", "ref"):
            yield start[kind]
        else:
            try:
                value, position = _decoder.raw_decode(as_json, start.start())
            except (ValueError, RecursionError):
                end = _group_end(text, start.start())
                prose += 1
                if end is None or prose > MAX_PROSE_BRACKETS:
                    return  # cut off, or nested beyond reason: the rest is inside it
                position = end
                try:
                    value = _decoder.decode(_PYTHON.sub(_to_json, text[start.start() : end]))
                except (ValueError, RecursionError):
                    continue  # brackets in prose
            yield value


def literal(text: str) -> Any:
    """Return the list or object that all of ``text`` is, in JSON or Python; None if neither."""
    text = with_json_quotes(text.rstrip("."))
    if text[:1] + text[-1:] not in ("[]", "{}", "()"):
        return None
    for rewritten in (lambda: text, lambda: _PYTHON.sub(_to_json, text)):
        with suppress(ValueError, RecursionError):
            return _decoder.decode(rewritten())
    return None


def with_json_quotes(text: str) -> str:
    """Write JSON's quotes for Python's where that is safe: one kind of quote, no escapes."""
    if "'" in text and '"' not in text and "\\" not in text:
        return text.replace("'", '"')
    return text


def _group_end(text: str, start: int) -> int | None:
    """Index after the bracket that closes the one at ``start``; None if there is none."""
    stack: list[str] = []
    for token in _INSIDE.finditer(text, start):
        mark = text[token.start()]
        if mark in "[({":
            stack.append(mark)
            if len(stack) > MAX_DEPTH:
                return None
        elif mark in "])}":
            if stack.pop() != _CLOSES[mark]:
                return None
            if not stack:
                return token.end()
    return None


def _to_json(token: re.Match[str]) -> str:
    """A token of a Python literal as JSON has it; ValueError if no literal has it."""
    kind, text = token.lastgroup, token.group()
    if kind == "string":
        return f'"{_ESCAPE.sub(_json_escape, text[1:-1])}"'
    if kind == "word":
        return _WORDS.get(text, "NaN")
    if kind == "number":
        return json.dumps(float(text))
    if kind == "unclosed":  # looking for its end from every quote would take quadratic time
        raise ValueError("a string that is not closed")
    return {"open": "[", "close": "]"}.get(str(kind), "")


def _json_escape(escape: re.Match[str]) -> str:
    """An escape or a double quote of a string as JSON has it."""
    of_both, said = escape[1], escape[0]
    return said if of_both else {'"': r"\"", r"\'": "'"}.get(said, "\\" + said)
