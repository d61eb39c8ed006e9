"""A finding of a check says what is wrong in a recipe, and how to fix it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_vlrft.recipe.run import Run

PLACEHOLDER = re.compile(
    r"<(?!/?(?:think|answer|image|video|audio|bbox|ref-object)>)[\w -]+>"
    r"|\b(?:path/to/|your[-_ ]|xxx+\b|todo\b)"
    r"|\[(?:your|model|path)[\w -]*\]",
    re.IGNORECASE,
)
PROBLEM = "problem"
NOTE = "note"


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit fixes the flags of a name and line: by another name, another value, or neither
    (``drop``: leave them out).
    """

    flag: str
    line: int
    name: str | None = None
    value: str | None = None
    drop: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding's ``level`` is a problem, which ends or ruins a run, or a note, for information."""

    path: Path
    line: int
    level: str
    rule: str
    text: str
    edit: Edit | None = None

    def as_dict(self) -> dict[str, object]:
        return {
            "file": str(self.path),
            "line": self.line,
            "level": self.level,
            "rule": self.rule,
            "text": self.text,
            "fixable": self.edit is not None,
        }


def problem(
    run: Run, at: str | int, rule: str, text: str, edit: Edit | None = None, level: str = PROBLEM
) -> Finding:
    """Return a problem ``at`` a line or a flag; for an absent flag, at the command's line."""
    line = run.line(at) if isinstance(at, str) else at
    return Finding(run.recipe.path, line, level, rule, text, edit)


note = partial(problem, level=NOTE)
