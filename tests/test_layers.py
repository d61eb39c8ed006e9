"""The house: which folder may import which, and what a light import may bring in."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "swift_vlrft"
# From the bottom up: a folder imports only folders that stand before it. `__init__` names what the
# package offers and imports it when it is asked for, so anything may import its version.
LAYERS = (
    "__init__",
    *("files", "geometry", "parsing", "families", "rewards", "datasets", "recipe", "diagnostics"),
    *(
        "shared_prefix",
        "chatglm4v",
        "memory",
        "evaluation",
        "agreement",
        "report",
        "hub",
        "tiny",
        "swift_plugin",
    ),
    *("demo", "commands", "cli"),
)
LIGHT = ("files", "geometry", "parsing", "families", "rewards", "recipe")
HEAVY = ("torch", "swift", "transformers", "vllm", "trl", "peft", "deepspeed")


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(file): file for file in PACKAGE.rglob("*.py")}


def imports(file: Path) -> list[tuple[str, bool]]:
    """Every module that a file names in an import, and whether it does so when it is imported."""
    found = []
    tree = ast.parse(file.read_text())
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test):
            inner |= {id(node) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) not in inner) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in FILES else node.module for name in whole]
            found += [(name, id(node) not in inner) for name in names]
    return found


def folder(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def test_the_root_holds_folders_and_the_command():
    loose = {file.name for file in PACKAGE.glob("*.py")}
    assert loose == {"__init__.py", "cli.py"}
    folders = {entry.name for entry in PACKAGE.iterdir() if (entry / "__init__.py").exists()}
    assert folders | {"cli", "__init__"} == set(LAYERS)


@pytest.mark.parametrize("layer", LAYERS[1:])
def test_arrows_point_down(layer):
    for module, file in FILES.items():
        if folder(module) == layer:
            for name, _ in imports(file):
                if name.split(".")[0] == "swift_vlrft":
                    assert LAYERS.index(folder(name)) <= LAYERS.index(layer), f"{module}: {name}"


def test_what_is_imported_exists():
    for folder_of_code in ("swift_vlrft", "tests", "benchmarks", "dev", "examples"):
        for file in (PACKAGE.parent / folder_of_code).rglob("*.py"):
            for name, _ in imports(file):
                if name.split(".")[0] == "swift_vlrft":
                    assert name in FILES, f"{file}: {name}"


def test_there_are_no_circles():
    arrows = {
        module: {name for name, _ in imports(file) if name in FILES and name != module}
        for module, file in FILES.items()
    }
    size = None
    while size != len(arrows):  # what imports nothing that is left, or is imported by nothing
        size = len(arrows)
        named = set().union(*arrows.values())
        arrows = {
            m: to & set(arrows) for m, to in arrows.items() if to & set(arrows) and m in named
        }
    assert not arrows


def test_only_the_plugin_imports_swift():
    for module, file in FILES.items():
        if folder(module) != "swift_plugin":
            assert not [n for n, _ in imports(file) if n.split(".")[0] == "swift"], module


def test_light_folders_bring_nothing_heavy_in():
    modules = [module for module in FILES if folder(module) in LIGHT]
    code = f"import sys, importlib\nfor m in {modules}: importlib.import_module(m)\n"
    code += f"print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tests_mirror_the_package():
    tests = Path(__file__).parent
    others = {"support", "end_to_end", "data", "fuzz"}
    for entry in tests.iterdir():
        if entry.is_dir() and entry.name not in others and not entry.name.startswith("_"):
            assert (PACKAGE / entry.name).is_dir(), entry.name


def test_no_expression_has_a_possessive_group():
    """Python before 3.11.5, Debian 12's among them, goes on behind a part of it that failed
    (python/cpython#101955).
    """
    for file in FILES.values():
        assert not re.search(r"\)(?:[*+?]|\{[\d,]+\})\+", file.read_text()), file
