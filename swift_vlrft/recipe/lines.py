"""Find lines that bash reads otherwise than they look: a byte order mark, carriage returns, a
missing backslash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from swift_vlrft.recipe.tree import Node, Note


def wrong_lines(text: str, statements: Sequence[Node]) -> Iterator[Note]:
    """Yield notes on such lines of a script."""
    if text.startswith("\ufeff"):
        why = "the file begins with a byte order mark, which bash takes for a part of line 1. "
        why += "Remove it: sed -i '1s/^\\xef\\xbb\\xbf//' FILE"
        yield Note(1, "syntax", why)
    if "\r" in text:
        why = "the line ends in a carriage return (Windows), which bash takes for a part of it. "
        why += "Convert the file: sed -i 's/\\r$//' FILE"
        yield Note(text[: text.index("\r")].count("\n") + 1, "continuation", why)
    lines = text.split("\n")
    for node, below in pairwise(statements):
        words = [word.text for word in node.Cmd.Args] if node.Cmd else []
        ends = re.match(r"[ \t\r]*(#.*)?\n", node.source[node.End.at :])
        if "swift" not in words or node.Background or not ends:
            continue
        here, above = lines[below.line - 1], lines[node.line - 1]
        deeper = len(here) - len(here.lstrip()) > len(above) - len(above.lstrip())
        follows = deeper and below.line == node.End.line + 1
        if follows and not here.lstrip().startswith("-"):  # script.py says that one in any case
            why = (
                f"no backslash ends line {node.End.line}, so bash takes `{here.strip()[:60]}` for "
            )
            yield Note(
                below.line,
                "continuation",
                f"{why}a command of its own: it and all below it are lost",
            )
