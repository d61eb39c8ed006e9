"""Write texts in the form in which they are compared, in bounded time.

plain_text("  Grand\n  Hôtel ")    "Grand Hôtel"
"""

import re
import unicodedata

MAX_TEXT = 20_000
"""A longer text, in characters after runs of blanks became one, is not read: some 6,000 tokens."""
MAX_MARKS = 30
"""More combining marks in a row are not put in order, which takes quadratic time; Unicode's
stream-safe text (UAX #15) has no more.
"""

_BOX_TOKENS = re.compile(r"<\|(?:begin|end)_of_box\|>")


def nfkc(text: str) -> str:
    """Return ``text`` in NFKC; unchanged if over ``MAX_MARKS`` combining marks stand in a row."""
    if text.isascii():
        return text
    marks = 0
    for kind in map(unicodedata.combining, text):
        marks = marks + 1 if kind else 0
        if marks > MAX_MARKS:
            return text
    return unicodedata.normalize("NFKC", text)


def plain_text(text: str) -> str | None:
    """Return the text in NFKC, with runs of blanks as one and none outside.

    The tokens that GLM puts around its answer are dropped. None if it is longer than ``MAX_TEXT``.
    """
    text = " ".join(_BOX_TOKENS.sub(" ", text).split())
    return None if len(text) > MAX_TEXT else " ".join(nfkc(text).split())
