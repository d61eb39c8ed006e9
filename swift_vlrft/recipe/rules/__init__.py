"""What can be said of a recipe without running it: one file of rules per kind, each a generator.

for finding in check_recipe(recipe): print(finding.line, finding.text)

What only ms-swift itself knows (its flags, types, choices, reward names) is in
swift_plugin/arguments.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from swift_vlrft.recipe.reader import Recipe, read_recipes
from swift_vlrft.recipe.rules.batches import batches
from swift_vlrft.recipe.rules.data import data
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Edit, Finding
from swift_vlrft.recipe.rules.gpus import visible_gpus
from swift_vlrft.recipe.rules.history import history
from swift_vlrft.recipe.rules.installed import installed
from swift_vlrft.recipe.rules.text import text

RULES = (text, history, batches, visible_gpus, data, installed)


def check(path: str | Path) -> list[Finding]:
    """What the rules say of every command of a script or configuration, without ms-swift."""
    return in_order(found for recipe in read_recipes(path) for found in check_recipe(recipe))


def check_recipe(recipe: Recipe) -> list[Finding]:
    """All that the rules say of one command, in the order of its lines."""
    return in_order(found for rule in RULES for found in rule(recipe))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(dict.fromkeys(findings), key=lambda found: (found.line, found.level != PROBLEM))


__all__ = ["NOTE", "PROBLEM", "Edit", "Finding", "check", "check_recipe", "in_order"]
