"""A finding of a check says what is wrong in a recipe, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from swift_vlrft.recipe.reader import CONFIGURATION, Flag
from swift_vlrft.recipe.tree import Patch, column_of

if TYPE_CHECKING:
    from swift_vlrft.recipe.run import Run

PLACEHOLDER = re.compile(
    r"<(?!/?(?:think|answer|image|video|audio|bbox|ref-object)>)[\w -]+>"
    r"|\b(?:path/to/|your[-_ ]|xxx+\b|todo\b)"
    r"|\[(?:your|model|path)[\w -]*\]"
    r"|\$\{?[A-Za-z_]\w*",  # nothing expands it in a configuration, or within single quotes
    re.IGNORECASE,
)
GAP = re.compile(r"=|(?:[ \t]|\\\r?\n)+")
BEFORE = re.compile(r"(?:[ \t]|\\\r?\n)*\Z")
PROBLEM = "problem"
NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding's ``level`` is a problem, which ends or ruins a run, or a note, for information;
    ``patches`` of the script's text mend it.
    """

    path: Path
    line: int
    level: str
    rule: str
    text: str
    patches: tuple[Patch, ...] = field(default=(), compare=False)
    column: int = 0
    """Of the word that it is about; 0 where there is none in this file."""

    def as_dict(self) -> dict[str, object]:
        kept = {name: getattr(self, name) for name in ("line", "column", "level", "rule", "text")}
        return {"file": str(self.path), **kept, "fixable": bool(self.patches)}


def problem(
    run: Run,
    at: str | int | Flag,
    rule: str,
    text: str,
    patches: Iterable[Patch] = (),
    level: str = PROBLEM,
) -> Finding:
    """Return a problem ``at`` a line or a flag; for an absent flag, at the command's line."""
    flag = run.given.get(at) if isinstance(at, str) else at
    if flag is None or isinstance(flag, int):
        return Finding(run.recipe.path, flag or run.recipe.line, level, rule, text)
    column = column_of(run.recipe.text, flag.span.start) if flag.span else 0
    mends = () if run.recipe.path.suffix in CONFIGURATION else tuple(patches)
    return Finding(run.recipe.path, flag.line, level, rule, text, mends, column)


note = partial(problem, level=NOTE)


def renamed(flag: Flag, name: str) -> tuple[Patch, ...]:
    """Return the change of a flag's name; none where it is not written out in the script."""
    span = flag.span
    return (Patch(span.start, span.end, f"--{name}"),) if span and span.literal else ()


def left_out(text: str, flag: Flag) -> tuple[Patch, ...]:
    """Return the change that leaves a flag out, with the blanks in front of it.

    None where it is not written out, or where anything stands between its words.
    """
    spans = [span for span in (flag.span, *flag.value_spans) if span and span.literal]
    between = [text[a.end : b.start] for a, b in pairwise(spans)]
    if len(spans) <= len(flag.value_spans) or not all(re.fullmatch(GAP, gap) for gap in between):
        return ()
    start, end = spans[0].start, spans[-1].end
    begin = len(BEFORE.sub("", text[:start]))
    line, stop = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
    if stop >= 0 and not (text[line:begin] + text[end:stop]).strip():
        return (Patch(line, stop + 1, ""),)
    # What follows (an operator, a redirection) stays a word apart.
    return (Patch(begin, end, "" if text[end : end + 1] in (*" \t\r\n)'\"", "") else " "),)
