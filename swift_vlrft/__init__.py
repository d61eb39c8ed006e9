"""Visual reinforcement fine-tuning as an extension of ms-swift.

from swift_vlrft import REWARDS, check, evaluate, plan, register
REWARDS["vlrft_counting"](["<answer>4</answer>"], ["4"])        [1.0]
check("train.sh")                                               problems of a recipe
plan("train.sh", "4x80").plan.verdict                           fits, tight, out of memory, ..
evaluate("model", "data/held_out", "detection").metrics         as printed by `vlrft eval`
register(["train.jsonl"])                                       usable as --dataset in ms-swift
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_vlrft.memory.recipe_plan import plan_recipe as plan  # noqa: F401
    from swift_vlrft.recipe.rules import check as check
    from swift_vlrft.rewards import REWARDS as REWARDS
    from swift_vlrft.swift_plugin.evaluate import evaluate as evaluate
    from swift_vlrft.swift_plugin.registration import register as register

__version__ = "0.1.0"

_PUBLIC = {
    "REWARDS": ("swift_vlrft.rewards", "REWARDS"),
    "check": ("swift_vlrft.recipe.rules", "check"),
    "evaluate": ("swift_vlrft.swift_plugin.evaluate", "evaluate"),
    "plan": ("swift_vlrft.memory.recipe_plan", "plan_recipe"),
    "register": ("swift_vlrft.swift_plugin.registration", "register"),
}
"""Public names and their modules, which are imported on first access."""


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        module, attribute = _PUBLIC[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
