"""Checks of a recipe without running it: one file per kind of rule; each rule is a generator.

for finding in check_recipe(recipe): print(finding.line, finding.text)

A rule ends silently if it needs a value that is not known (recipe/run.py: NoValue).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from swift_vlrft.recipe.reader import Recipe, read_recipes
from swift_vlrft.recipe.rules.batches import BATCHES
from swift_vlrft.recipe.rules.data import DATA
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Edit, Finding
from swift_vlrft.recipe.rules.gpus import visible_gpus
from swift_vlrft.recipe.rules.history import HISTORY
from swift_vlrft.recipe.rules.installed import installed
from swift_vlrft.recipe.rules.losses import LOSSES
from swift_vlrft.recipe.rules.model import MODEL
from swift_vlrft.recipe.rules.prefix import PREFIX
from swift_vlrft.recipe.rules.text import TEXT
from swift_vlrft.recipe.rules.trust import code_and_pickles
from swift_vlrft.recipe.run import NoValue, Run, resolve

Rule = Callable[[Run], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    *TEXT,
    *HISTORY,
    *BATCHES,
    *LOSSES,
    visible_gpus,
    *MODEL,
    code_and_pickles,
    *PREFIX,
    *DATA,
    installed,
)


def check(path: str | Path) -> list[Finding]:
    """The findings for every command of a script or configuration, in the order of their lines;
    nothing is run, and ms-swift is not imported. ValueError for a file that cannot be read as one.
    """
    return in_order(finding for recipe in read_recipes(path) for finding in check_recipe(recipe))


def check_recipe(recipe: Recipe | Run, rules: Iterable[Rule] = RULES) -> list[Finding]:
    """The findings for one command, in the order of its lines."""
    run = resolve(recipe)
    return in_order(finding for rule in rules for finding in _known(rule, run))


def _known(rule: Rule, run: Run) -> Iterator[Finding]:
    try:
        yield from rule(run)
    except NoValue:
        return


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(
        dict.fromkeys(findings), key=lambda finding: (finding.line, finding.level != PROBLEM)
    )


__all__ = ["NOTE", "PROBLEM", "Edit", "Finding", "Rule", "check", "check_recipe", "in_order"]
