"""Rewards by name: each is a function in its task's file; a new file joins ``_FILES``.

from swift_vlrft.rewards import score, vlrft_counting
vlrft_counting(["<answer>4</answer>"], ["4"])               [1.0]
score("vlrft_counting", "<answer>4</answer>", "4")          1.0
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from swift_vlrft.rewards.contract import Reward, RewardFunction, Scores, Task

_FILES = (
    *("detection", "paper", "grounding", "pointing", "classification", "number"),
    *("choice", "ocr", "mathematics", "listing", "temporal", "format", "zoom"),
)

REWARDS: dict[str, Reward] = {
    name: value
    for file in _FILES
    for name, value in vars(import_module(f"{__name__}.{file}")).items()
    if isinstance(value, Reward)
}
"""``f(completions, solution, **columns) -> list[float | None]`` by the name that ms-swift logs."""

TASK_NAMES: dict[str, Task] = {r.task.name: r.task for r in REWARDS.values() if r.task is not None}
"""The tasks by the name that a row's ``task`` column holds."""

PAYING: dict[str, list[str]] = {
    task: [n for n, r in REWARDS.items() if r.task is known and r.recommended]
    for task, known in TASK_NAMES.items()
}
"""The rewards of each task that pay 1.0 for the gold answer, the main one first."""

_COLUMNS = {"task", "response_prefix", *(c for r in REWARDS.values() for c in r.needs + r.takes)}
_COLUMNS.remove("solution")

__all__ = ["PAYING", "REWARDS", "TASK_NAMES", "Reward", "RewardFunction", "Scores", "Task"]
__all__ += ["reward_columns", "score", *REWARDS]


def score(name: str, completion: Any, solution: Any = None, **columns: Any) -> float | None:
    """Score one answer by the reward of that name; ``columns`` are those of its row.

    >>> score("vlrft_number", "<answer>41.8</answer>", "42", tolerance=0.01)
    1.0
    """
    if name not in REWARDS:
        raise ValueError(f"{name} is no reward; known: {', '.join(REWARDS)}")
    row = {column: [value] for column, value in columns.items()}
    return REWARDS[name]([completion], [solution], **row)[0]


def reward_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that rewards read besides the solution."""
    return {key: row[key] for key in sorted(_COLUMNS) if row.get(key) is not None}


def __getattr__(name: str) -> Reward:
    if name in REWARDS:
        return REWARDS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
