"""Patches of a script's text: (from, to, what to put there), by characters.

patched("--a 1 --b 2", [cut("--a 1 --b 2", 6, 9)])      "--a 1 2"
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from swift_vlrft.recipe.reader import Flag

Patch = tuple[int, int, str]

PLAIN = re.compile(r"[\w./:@%+,-]+")
"""A value that stands for itself wherever it is written."""


def patched(text: str, patches: Iterable[Patch]) -> str:
    for start, end, new in sorted(patches, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def quoted(value: str, like: str = "") -> str:
    """A value as a word of a script, in the quotes of the word before where it may be."""
    quote = like[:1]
    if quote in ("'", '"') and like[-1:] == quote and len(like) > 1 and PLAIN.fullmatch(value):
        return f"{quote}{value}{quote}"
    return shlex.quote(value)


def words_of(text: str, flag: Flag) -> Iterator[tuple[int, int]]:
    """Where a flag's words stand: --name=value is one, --name value are two."""
    spans = [span for span in (flag.span, *flag.value_spans) if span is not None]
    ends = [(span.start, span.end) for span in spans]
    if len(ends) > 1 and ends[1][0] == ends[0][1] + 1 and text[ends[0][1]] == "=":
        ends[:2] = [(ends[0][0], ends[1][1])]
    yield from ends


def cut(text: str, start: int, end: int) -> Patch:
    """The patch that takes a word out, with the blanks and continued lines in front of it, or with
    its line where it is alone on it. What follows (an operator, a redirection) stays a word apart.
    """
    begin = _gap(text, start)
    line, stop = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
    if stop >= 0 and not (text[line:begin] + text[end:stop]).strip():
        return line, stop + 1, ""
    return begin, end, "" if text[end : end + 1] in (*" \t\r\n)'\"", "") else " "


def _gap(text: str, at: int) -> int:
    while at:
        if text[at - 1] in " \t":
            at -= 1
        elif text.endswith("\\\n", 0, at):
            at -= 2
        elif text.endswith("\\\r\n", 0, at):
            at -= 3
        else:
            break
    return at
