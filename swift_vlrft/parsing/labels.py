"""When two class names are equal.

"African_Grey-Parrot." == " african grey  parrot"
"cat" != "catfish", "tulip" != "not tulip"
"""

import re
from functools import lru_cache

from swift_vlrft.parsing.texts import nfkc

MAX_LABEL = 10_000
"""A longer text is not a class name."""

EMPTY_ANSWERS = frozenset({"no objects", "none"})
"""Normalised answers that mean that there is no object."""

UNREADABLE_LABEL = "\0"
"""Stands for a label that is not text (a list, a bool): it equals no gold label."""

_BLANKS = re.compile(r"[\s_-]+")
_OUTER = ".,;:!?…。、·*()[]{}<> "
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "「": "」"}


@lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """``text`` in the form in which class names are compared.

    NFKC, case folded; runs of blanks, ``_`` and ``-`` are one blank; outer punctuation and one
    pair of quotes are dropped. Empty if nothing is left, or if the text is too long to be a
    name: an empty name equals nothing.
    """
    text = text.strip()
    if len(text) > MAX_LABEL:
        return ""
    text = nfkc(nfkc(text).casefold())
    text = _BLANKS.sub(" ", text).strip(_OUTER)
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip(_OUTER)
    return text
