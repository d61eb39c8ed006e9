"""Visual reinforcement fine-tuning as an extension of ms-swift."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_vlrft.swift_plugin.evaluate import evaluate as evaluate

__version__ = "0.1.0"

_PUBLIC = {"evaluate": "swift_vlrft.swift_plugin.evaluate"}
"""Public names and where they are: what they need is imported when they are asked for."""


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
