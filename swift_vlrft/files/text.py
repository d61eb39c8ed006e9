r"""Outputs show text of models and of strangers' files, and must not do what it says.

printable("\x1b[31mred\n")     "\\x1b[31mred\\n"     one line, for a terminal
lines("a\x07\nb")              "a\\x07\nb"           the same, but line ends stay
visible("\u202eexe.png")       "\\u202eexe.png"      for a page: only what no page shows
"""

from __future__ import annotations

import re

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
"""Control characters (C1, too, which terminals obey), marks of the direction of writing, with which
a text can be shown as another, and lone surrogates.
"""


def printable(text: object) -> str:
    """Write every character that is not printable as its escape."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def lines(text: object) -> str:
    """Write a text of several lines as ``printable`` writes one."""
    return "\n".join(map(printable, str(text).split("\n")))


class InputError(ValueError):
    """Input that cannot be used. Its text is safe to print wherever it ends, in a traceback, too:
    it quotes the input.
    """

    def __str__(self) -> str:
        return lines(super().__str__())


class PlacedError(InputError):
    """Input that cannot be used; ``problem`` does not name the ``place``, a file or its line."""

    def __init__(self, place: object, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem

    def __str__(self) -> str:
        return lines(f"{self.place}: {self.problem}")


def visible(text: str) -> str:
    """Write the characters that no page shows as their escapes."""
    return UNSEEN.sub(lambda match: repr(match[0])[1:-1], re.sub("\r\n?", "\n", text))
