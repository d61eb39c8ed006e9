"""Check a recipe without running it: one file per kind of rule; each rule is a generator.

for finding in check_recipe(run): print(finding.line, finding.text)

A rule ends silently if it needs a value that is not known (recipe/run.py: NoValue).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from swift_vlrft.recipe.reader import read_recipes
from swift_vlrft.recipe.rules.batches import BATCHES, visible_gpus
from swift_vlrft.recipe.rules.clashes import clashes, idle, installed
from swift_vlrft.recipe.rules.data import DATA
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding
from swift_vlrft.recipe.rules.model import MODEL, checkpoint
from swift_vlrft.recipe.rules.text import TEXT
from swift_vlrft.recipe.rules.turns import turns
from swift_vlrft.recipe.run import NoValue, Run, resolve

Rule = Callable[[Run], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    *(*TEXT, clashes, idle, *BATCHES, visible_gpus, *MODEL),
    *(turns, checkpoint, *DATA, installed),
)


def check(path: str | Path) -> list[Finding]:
    """Check every command of a script or configuration; the findings come in the order of lines.
    Nothing is run, and ms-swift is not imported. ValueError for a file that cannot be read.
    """
    return check_recipes(map(resolve, read_recipes(path)))


def check_recipes(runs: Iterable[Run]) -> list[Finding]:
    """Check the commands of a script."""
    return in_order(finding for run in runs for finding in check_recipe(run))


def check_recipe(run: Run, rules: Iterable[Rule] = RULES) -> list[Finding]:
    """Check a command by all its rules, or by these; findings come in the order of lines."""
    findings: list[Finding] = []
    for rule in rules:
        with suppress(NoValue):
            findings.extend(rule(run))
    return in_order(findings)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(dict.fromkeys(findings), key=lambda each: (each.line, each.level != PROBLEM))


__all__ = ["NOTE", "PROBLEM", "Finding", "Rule", "check", "check_recipe", "check_recipes"]
