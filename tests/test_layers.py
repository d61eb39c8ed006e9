"""The house: which folder may import which, and what a light import may bring in."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "swift_vlrft"
# From the bottom up: a folder imports only folders that stand before it. `__init__` names what the
# package offers and imports it when it is asked for, so anything may import its version.
LAYERS = (
    "__init__",
    *("files", "geometry", "parsing", "families", "zoom", "rewards", "datasets", "recipe"),
    *("diagnostics", "shared_prefix", "chatglm4v", "memory", "evaluation", "agreement", "report"),
    *("hub", "tiny"),
    *("swift_plugin", "demo", "commands", "cli"),
)
LIGHT = ("files", "geometry", "parsing", "families", "zoom", "rewards", "recipe")
HEAVY = (*("torch", "swift", "transformers", "vllm", "trl", "peft", "deepspeed", "numpy", "scipy"),)


def module_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(file): file for file in PACKAGE.rglob("*.py")}


def imports(file: Path) -> set[str]:
    """Every module that a file names in an import, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in FILES else node.module for name in whole}
    return names


IMPORTS = {module: imports(file) for module, file in FILES.items()}


def folder(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def test_the_root_holds_folders_and_the_command():
    assert {file.name for file in PACKAGE.glob("*.py")} == {"__init__.py", "cli.py"}
    folders = {entry.parent.name for entry in PACKAGE.glob("*/__init__.py")}
    assert folders | {"cli", "__init__"} == set(LAYERS)


def test_arrows_point_down():
    for module, names in IMPORTS.items():
        for name in names & set(FILES) if module != "swift_vlrft" else ():
            assert LAYERS.index(folder(name)) <= LAYERS.index(folder(module)), f"{module}: {name}"


def test_what_could_leave_is_imported_by_few():
    """Rooms that could be packages of their own, and who imports them."""
    satellites = {
        "chatglm4v": {"swift_plugin", "memory", "tiny"},
        "shared_prefix": {"swift_plugin", "memory"},
        "agreement": {"swift_plugin", "commands"},
        "zoom": {"swift_plugin", "rewards", "recipe"},
    }
    for module, names in IMPORTS.items():
        for room in {folder(name) for name in names & set(FILES)} & satellites.keys():
            assert folder(module) in satellites[room] | {room}, f"{module} imports {room}"


def test_a_docstring_begins_with_a_short_sentence():
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    long = []
    for module, file in FILES.items():
        nodes = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, kinds)]
        for text in filter(None, map(ast.get_docstring, nodes)):
            first = re.split(r"(?<=[.:!?;])\s", " ".join(text.split()))[0]
            long += [f"{module}: {first}"] * (len(first) > 90)
    assert long == []


def test_there_are_no_circles():
    arrows = {module: (names & set(FILES)) - {module} for module, names in IMPORTS.items()}
    TopologicalSorter(arrows).prepare()  # or it says which modules


def test_only_the_plugin_imports_swift():
    for module, names in IMPORTS.items():
        if folder(module) != "swift_plugin":
            assert not [name for name in names if name.split(".")[0] == "swift"], module


def test_light_folders_bring_nothing_heavy_in():
    modules = [module for module in FILES if folder(module) in LIGHT]
    modules.append("swift_vlrft.chatglm4v.vllm_plugin")  # in every process of vLLM
    code = f"import sys, importlib\nfor m in {modules}: importlib.import_module(m)\n"
    code += f"print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_expression_has_a_possessive_group():
    """Python before 3.11.5, Debian 12's among them, goes on behind a part of it that failed
    (python/cpython#101955).
    """
    for file in FILES.values():
        assert not re.search(r"\)(?:[*+?]|\{[\d,]+\})\+", file.read_text()), file
