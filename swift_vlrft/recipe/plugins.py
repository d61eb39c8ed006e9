"""Read from a plugin file's text what it registers in ms-swift: it is neither imported nor run.

orms["short_answer"] = ShortAnswer             names ["short_answer"]
swift_vlrft.register()                         ours
orms.update(...), orms[name] = ...             anything
import my_rewards                              anything, if my_rewards.py lies beside the file
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from swift_vlrft.rewards import REWARDS

NAMED = re.compile(r"\borms\[\s*[\"']([\w-]+)[\"']\s*\]\s*=(?!=)")
OURS = re.compile(r"\bswift_vlrft\b[\s\S]*\bregister\b")
IMPORTED = re.compile(r"(?m)^\s*(?:from|import)\s+\.*(\w+)(?!.*\borms as\b).*")
OTHERS = re.compile(r"\borms\b(?!\s*\[\s*[\"'])|__import__|import_module|exec\(")
"""What may register names that stand nowhere in the text."""


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
    data = path.read_bytes()
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(data)
    except SyntaxError as error:
        return Plugin(fault=f"line {error.lineno or 1}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Plugin(fault=str(error))
    text = re.sub(r"(?m)(?:^|\s)#.*", "", data.decode(errors="replace"))
    names, ours = NAMED.findall(text), OURS.search(text) is not None
    beside = any(path.with_name(f"{name}.py").exists() for name in IMPORTED.findall(text))
    others = OTHERS.search(IMPORTED.sub("", text)) is not None
    return Plugin(names, ours, beside or others)


def clash(plugin: Plugin) -> str | None:
    """Describe the clash of a file that is not ours but registers a name of ours."""
    taken = [name for name in plugin.names if name in REWARDS]
    if not taken:
        return None
    return f"registers {', '.join(taken)}, as this package does: rename the reward there"
