"""Keep the columns that rewards read in the table of completions.

`vlrft score` and `vlrft report` find them in completions.jsonl, beside the solution.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from swift_vlrft.rewards import reward_columns
from swift_vlrft.swift_plugin.mixin import SwiftsTrainer


class Columns(SwiftsTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._kept_columns: set[str] = set()
        super().__init__(*args, **kwargs)

    def _score_completions(self, samples: Any) -> Any:
        samples = super()._score_completions(samples)
        own = [(reward_columns(sample.extra), "solution" in sample.extra) for sample in samples]
        rows = self._gather_and_flatten(own, flatten_level=0)
        self._keep_columns([columns for columns, _ in rows])
        if any(has_solution for _, has_solution in rows) or "solution" in self._logs:
            self._align_solutions(samples)
        return samples

    def _compute_rewards_per_func(self, samples: Any) -> Any:
        if self.args.multi_turn_scheduler:  # rewards and logs read turns as a column
            for sample in samples:
                before = sample.extra.get("turns", [])
                sample.extra["turns"] = (sample.rollout_infos or {}).get("turns", before)
        return super()._compute_rewards_per_func(samples)

    def _keep_columns(self, columns: list[dict[str, Any]]) -> None:
        """Add a value per completion of all processes to the trainer's table of completions."""
        self._kept_columns |= {key for row in columns for key in row}
        for key in sorted(self._kept_columns):
            self._column(key).extend(row.get(key) for row in columns)

    def _align_solutions(self, samples: Any) -> None:
        """Give every sample a solution, None where it has none; rewards are computed by now.

        ms-swift keeps the solutions of a batch if all its rows have one, and asks each process
        for itself: else those of an earlier batch would stand beside other completions, or the
        processes wait for each other.
        """
        for sample in samples:
            sample.extra.setdefault("solution", None)
        self._column("solution")

    def _column(self, key: str) -> deque[Any]:
        logs = self._logs
        if key not in logs:  # rows of earlier batches had no such column
            logs[key] = deque([None] * len(logs["completion"]), logs["completion"].maxlen)
        column: deque[Any] = logs[key]
        return column
