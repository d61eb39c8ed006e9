"""Log what each task does where one run trains on several.

    tasks/ocr/reward    tasks/ocr/length    tasks/ocr/parse_rate    tasks/ocr/zero_variance
    tasks/ocr/share

beside ms-swift's metrics, of which `reward` and `frac_reward_zero_std` are over all tasks. The
columns that rewards read besides the solution are kept with the completions, so that `vlrft score`
and `vlrft report` find them in completions.jsonl.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from swift.utils import get_logger

from swift_vlrft.diagnostics.by_task import Scored, TaskFigures, by_task
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.parsing.answers import text_of
from swift_vlrft.rewards import REWARDS, reward_columns
from swift_vlrft.swift_plugin.mixin import SwiftsTrainer

logger = get_logger()

LOGGED = ("reward", "length", "parse_rate", "zero_variance", "share")
MOST_TASKS, LONGEST_NAME = 30, 80
"""A column ``task`` with more values, or longer ones, holds texts, not the names of tasks."""


class _Row(NamedTuple):
    """A completion's entry in the log, its reward not yet known."""

    scored: Scored
    request: str | None
    columns: dict[str, Any]
    has_solution: bool


class Tasks(SwiftsTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._tasks: dict[str, set[str]] = {"train": set(), "eval": set()}
        self._kept_columns: set[str] = set()
        super().__init__(*args, **kwargs)

    def _score_completions(self, samples: Any) -> Any:
        samples = super()._score_completions(samples)
        self._log_by_task(samples)
        return samples

    def _compute_rewards_per_func(self, samples: Any) -> Any:
        if self.args.multi_turn_scheduler:  # rewards and logs read turns as a column
            for sample in samples:
                before = sample.extra.get("turns", [])
                sample.extra["turns"] = (sample.rollout_infos or {}).get("turns", before)
        return super()._compute_rewards_per_func(samples)

    def _log_by_task(self, samples: Any) -> None:
        """Log figures by task, of all processes' completions in the order of the rewards."""
        rows: list[_Row] = self._gather_and_flatten(
            list(map(self._row_by_task, samples)), flatten_level=0
        )
        self._keep_columns([row.columns for row in rows])
        if any(row.has_solution for row in rows) or "solution" in self._logs:
            self._align_solutions(samples)
        mode = "train" if self.model.training else "eval"
        if len(self._rewards_per_func) == len(rows):
            self._log_tasks(by_task(self._with_rewards(rows, mode)), mode)

    def _log_tasks(self, by_task: dict[str, TaskFigures], mode: str) -> None:
        by_task.pop("", None)
        tasks = self._tasks[mode]
        tasks.update(by_task)
        if len(tasks) > MOST_TASKS or any(len(task) > LONGEST_NAME for task in tasks):
            logger.warning_once(
                f"swift_vlrft: no more figures by task: the column task has over {MOST_TASKS} "
                f"values, or a value of over {LONGEST_NAME} characters, such as "
                f"{max(tasks, key=len)[:LONGEST_NAME]!r}"
            )
            return
        if len(tasks) < 2:
            return
        metrics = self._metrics[mode]
        for task in sorted(tasks - by_task.keys()):
            metrics[f"tasks/{task}/share"].append(0.0)
        for task, figures in by_task.items():
            for name in LOGGED:
                if (value := getattr(figures, name)) is not None:
                    # ms-swift's GRPO trainer averages these values into its next log line.
                    metrics[f"tasks/{task}/{name}"].append(value)

    def _with_rewards(self, rows: list[_Row], mode: str) -> Iterable[Scored]:
        """Return each completion with its reward and its group.

        Groups go by position, as in ms-swift's advantages: many images share a prompt.
        """
        rewards = self._rewards_per_func
        sums = (rewards * self.reward_weights.unsqueeze(0)).nansum(1).tolist()
        none = rewards.isnan().all(1).tolist()
        size = self.num_generations if mode == "train" else self.num_generations_eval
        scored: dict[Hashable, Scored] = {}
        for n, row in enumerate(rows):
            with_reward = row.scored._replace(reward=None if none[n] else sums[n])
            if self.dynamic_num_samples:  # several samples of a dialogue have one reward
                scored[row.request] = with_reward
            else:
                scored[n] = with_reward._replace(group=n // size)
        return scored.values()

    def _row_by_task(self, sample: Any) -> _Row:
        """Return a completion's entry; an empty one, with a warning, if it cannot be read.

        A process that stopped here would leave the others waiting for it.
        """
        try:
            columns = reward_columns(sample.extra)
            task = str(columns.get("task", ""))
            # Of several turns it is a list of lists.
            turns = sample.response_token_ids or ()
            length = sum(len(turn) if isinstance(turn, (list, tuple)) else 1 for turn in turns)
            scored = Scored(task, sample.prompt_id, None, length, self._was_read(sample, task))
            return _Row(scored, sample.request_id, columns, "solution" in sample.extra)
        except Exception as error:
            logger.warning_once(f"swift_vlrft: the figures by task are not complete: {error!r}")
            return _Row(Scored("", None, None, 0, None), None, {}, has_solution=False)

    def _was_read(self, sample: Any, task: str) -> bool | None:
        for name in self.reward_func_names:
            if name in REWARDS and (of := REWARDS[name].task) is not None and of.name == task:
                answer = text_of(sample.messages[-1]["content"])
                solution = sample.extra.get("solution")
                return explain(name, answer, solution, **reward_columns(sample.extra)).was_read
        return None

    def _keep_columns(self, columns: list[dict[str, Any]]) -> None:
        """Add a value per completion to the trainer's table of completions."""
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
