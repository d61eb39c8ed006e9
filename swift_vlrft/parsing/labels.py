"""Names of classes in the form in which they are compared, and the empty set's words.

normalise("`African-Violet`.")     "african violet"
normalise("747‑400")               "747 400"
normalise("[0, 10]")               "[0, 10]"
"""

import re
from functools import lru_cache

from swift_vlrft.parsing.texts import nfkc
from swift_vlrft.parsing.unwrap import unwrapped

MAX_LABEL = 10_000
"""A longer text is not a class name."""

UNREADABLE_LABEL = "\0"
"""Stands for a label that is not text (a list, a bool): it equals no gold label."""

_DASHES = re.compile("[\u2010-\u2015\u2212\u2043\ufe58]")
_BLANKS = re.compile(r"(?<=[^\s_-])[\s_-]+(?=[^\s_-])")
_END = ".,;:!?。、 "
_CLOSES = {"(": ")", "[": "]"}

_EMPTY = re.compile(
    r"(?i)(?:no objects(?: (?:found|detected|visible|present))?|none|null|\[\s*]|\{\s*}|无|没有目标"
    r"|there (?:is|are) no (?!doubt|question|way|reason)(?:[\w'-]+ ){1,6}?in th(?:e|is)"
    r" (?:image|picture|photo))[.。!！]?"
)


def is_empty_set(text: str) -> bool:
    """Return whether all of ``text``, unwrapped, says that there is nothing: ``[]``, "None"."""
    return len(text) < 120 and _EMPTY.fullmatch(unwrapped(text)) is not None


@lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """Return ``text`` in the form in which class names are compared.

    Unwrapped, case folded; runs of blanks, ``_`` and hyphens inside are one blank; punctuation at
    the end and one pair of brackets without a comma are dropped, no other sign: ``<60`` and
    ``A*`` stay. Empty, which equals nothing, if nothing is left or the text is too long.
    """
    if len(text) > MAX_LABEL:
        return ""
    text = nfkc(nfkc(unwrapped(text)).casefold())
    if not text.isascii():
        text = _DASHES.sub("-", text)
    text = text.rstrip(_END)
    if _CLOSES.get(text[:1]) == text[-1:] and not any(mark in text[1:-1] for mark in "()[],"):
        text = text[1:-1].rstrip(_END)
    return _BLANKS.sub(" ", text.strip())
