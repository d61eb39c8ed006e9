"""One finding of a check about a recipe, and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_vlrft.recipe.run import Run

PROBLEM = "problem"
NOTE = "note"


@dataclass(frozen=True, slots=True)
class Edit:
    """How to fix a flag: another name, other values, or neither (``drop``: leave it out).

    ``line`` None: the effective flag, or a new one if there is none.
    """

    flag: str
    line: int | None = None
    name: str | None = None
    values: tuple[str, ...] | None = None
    drop: bool = False
    add: str | None = None
    """A complete flag to write after this one."""


@dataclass(frozen=True, slots=True)
class Variable:
    """NAME=value for the environment of a command."""

    name: str
    value: str


def added_flag(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and values of an Edit's ``add``."""
    name, *values = text.removeprefix("--").split(" ")
    return name, tuple(values)


@dataclass(frozen=True, slots=True)
class Finding:
    """``level``: a problem ends or ruins a run; a note is for information."""

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
    """``at``: a line, or a flag by name; for an absent flag, the line of the command."""
    line = run.line(at) if isinstance(at, str) else at
    return Finding(run.recipe.path, line, level, rule, text, edit)


note = partial(problem, level=NOTE)
