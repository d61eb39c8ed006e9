"""Read from a plugin file's text what it registers in ms-swift: it is neither imported nor run.

orms["short_answer"] = ShortAnswer             names ["short_answer"]
swift_vlrft.register()                         ours
orms.update(...), orms[name] = ...             anything
import my_rewards                              anything, if my_rewards.py lies beside the file
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from swift_vlrft.rewards import REWARDS

RUNS_OTHERS = frozenset({"exec", "__import__", "import_module", "run_path", "import_external_file"})
"""What brings in code that stands nowhere as an import."""


@dataclass(slots=True)
class Plugin:
    """``fault`` says why Python refuses the file, with the line."""

    names: list[str] = field(default_factory=list)
    ours: bool = False
    """Whether it registers the rewards of this package."""
    anything: bool = False
    """Whether it may register names that its text does not tell."""
    fault: str | None = None


def read_plugin(path: Path) -> Plugin:
    """Read a plugin file; OSError if that fails."""
    plugin = Plugin()
    try:
        with warnings.catch_warnings(action="ignore"):
            nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except SyntaxError as error:
        plugin.fault = f"line {error.lineno or 1}: {error.msg}"
        return plugin
    except (ValueError, RecursionError, MemoryError) as error:
        plugin.fault = str(error)
        return plugin
    modules: list[str] = []
    meant: dict[str, str] = {}
    table, stored = 0, 0  # how often ms-swift's table is named, and how often to register a name
    for node in nodes:
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
            meant.update((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom):
            modules += [node.module] if node.module else [alias.name for alias in node.names]
            meant.update((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
            table += any(alias.name == "orms" and alias.asname for alias in node.names)
    for name in {module.partition(".")[0] for module in modules} - {"swift", "swift_vlrft"}:
        plugin.anything |= (path.parent / f"{name}.py").exists() or (path.parent / name).is_dir()
    for node in nodes:
        table += _is_table(node)
        if isinstance(node, ast.Subscript) and _is_table(node.value):
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                stored += 1
                plugin.names += [node.slice.value] * isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            first, _, rest = ast.unparse(node.func).partition(".")
            called = f"{meant.get(first, first)}.{rest}".rstrip(".")
            plugin.ours |= called.startswith("swift_vlrft.") and called.endswith(".register")
            plugin.anything |= called.rpartition(".")[2] in RUNS_OTHERS
    plugin.anything |= table > stored
    return plugin


def clash(plugin: Plugin) -> str | None:
    """Describe the clash of a file that is not ours but registers a name of ours."""
    taken = [name for name in plugin.names if name in REWARDS]
    if not taken:
        return None
    return f"registers {', '.join(taken)}, as this package does: rename the reward there"


def _is_table(node: ast.AST) -> bool:
    """Whether it is ms-swift's table of rewards by name."""
    named = isinstance(node, ast.Name) and node.id == "orms"
    return named or (isinstance(node, ast.Attribute) and node.attr == "orms")
