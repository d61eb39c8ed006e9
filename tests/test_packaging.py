"""pyproject.toml names what the package imports."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions

from packaging.requirements import Requirement
from support.swift_run import REPOSITORY

THE_USERS_CHOICE = {"torch", "vllm", "deepspeed"}


def imported() -> set[str]:
    """Top-level names that any module of the package imports, anywhere in it."""
    found = set()
    for path in (REPOSITORY / "swift_vlrft").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"swift_vlrft"}


def plain(name: str) -> str:
    return name.lower().replace("_", "-")


def test_what_is_imported_is_declared():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {plain(Requirement(text).name) for listed in lists for text in listed}
    distributions = packages_distributions()
    missing = {
        name
        for name in imported() - THE_USERS_CHOICE
        if not declared & {plain(d) for d in distributions.get(name, [name])}
    }
    assert not missing
