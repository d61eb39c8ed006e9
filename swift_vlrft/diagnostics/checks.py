"""Problems that ruin a run, found in a few batches: for ``vlrft score`` and while training.

9 of 10 answers cannot be read                      parse rate
every completion of every group scores the same     zero variance
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from swift_vlrft.diagnostics.reasons import Reason, advice
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.rewards import REWARDS


def group_of(row: dict[str, Any]) -> tuple[str, ...] | None:
    """A key for completions of one prompt and gold (images share questions), if it has one."""
    prompt = str(row.get("prompt_id") or row.get("prompt") or "")
    return (prompt, str(row.get("step", "")), gold_text(row.get("solution"))) if prompt else None


@dataclass(slots=True)
class Tally:
    """Counts over the completions of one reward; ``unscored`` by the reason."""

    scored: int = 0
    readable: int = 0
    groups: int = 0
    zero_variance_groups: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)

    def add(self, rows: Iterable[dict[str, Any]], reasons: Iterable[Reason], least: int) -> None:
        """Groups of fewer than ``least`` completions do not count."""
        groups: dict[tuple[str, ...], list[float]] = {}
        for row, reason in zip(rows, reasons, strict=True):
            if reason.score is None:
                self.unscored[reason.text] += 1
                continue
            self.scored += 1
            self.codes[reason.code] += 1
            self.readable += reason.was_read
            if (group := group_of(row)) is not None:
                groups.setdefault(group, []).append(reason.score)
        complete = [scores for scores in groups.values() if len(scores) >= least]
        self.groups += len(complete)
        # Equal scores make GRPO's advantages zero.
        equal = [math.isclose(min(scores), max(scores), abs_tol=1e-9) for scores in complete]
        self.zero_variance_groups += sum(equal)

    def unreadable(self, name: str) -> str | None:
        """One sentence if fewer than half of the answers could be read."""
        if self.readable >= 0.5 * self.scored:
            return None
        rate = f"{self.readable / self.scored:.0%}"
        return f"{name}: only {rate} of {self.scored} answers can be read."

    def zero_variance(self, name: str, cause: str | None = None) -> str | None:
        """One sentence if all groups have zero variance; ``cause``: what is known to be wrong."""
        if self.zero_variance_groups < max(1, self.groups):
            return None
        return (
            f"{name}: zero variance within every one of {self.groups} groups, so nothing is "
            f"learned from it. {advice(self.codes, misplaced=cause is not None)}"
        )


def has_boxes(name: str, task: str | None = None) -> bool:
    """Whether the reward ``name`` compares with boxes, in a row of ``task`` (None: not stated)."""
    scored = REWARDS[name].task
    return scored is not None and scored.gold_has_boxes and task in (None, "", scored.name)
