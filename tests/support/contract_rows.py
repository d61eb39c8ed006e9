"""The rows of tests/rewards/contract. The first row of every reward is an answer that earns 1."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from swift_vlrft.rewards import REWARDS

FOLDER = Path(__file__).parents[1] / "rewards" / "contract"


@cache
def rows(name: str) -> list[dict[str, Any]]:
    """The cases of a reward, by its name in REWARDS."""
    lines = (FOLDER / f"{name.removeprefix('vlrft_')}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def right(name: str) -> tuple[str, Any]:
    """A completion that earns 1, and its solution."""
    return rows(name)[0]["completion"], rows(name)[0]["solution"]


@cache
def gold_by_task() -> dict[str, Any]:
    """The solution of a right answer of every task."""
    return {reward.task.name: right(name)[1] for name, reward in REWARDS.items() if reward.task}


def plain_rows(name: str) -> list[dict[str, Any]]:
    """Those with a known score, a solution that is text, and no further column."""
    return [
        row
        for row in rows(name)
        if row.keys() == {"why", "completion", "solution", "score"}
        and row["score"] is not None
        and isinstance(row["solution"], str | None)
    ]


def two_rows(name: str) -> tuple[list[str], list[str]]:
    """Completions and solutions of two of these, the right one and the last one."""
    pair = plain_rows(name)[0], plain_rows(name)[-1]
    return [row["completion"] for row in pair], [row["solution"] or "-" for row in pair]
