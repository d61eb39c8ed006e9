"""In the logs, what each task does where one run trains on several.

    tasks/ocr/reward    tasks/ocr/length    tasks/ocr/parse_rate    tasks/ocr/zero_variance
    tasks/ocr/share

beside ms-swift's metrics, of which `reward` and `frac_reward_zero_std` are over all tasks. The
columns that rewards read besides the solution are kept with the completions, so that `vlrft score`
and `vlrft report` find them in completions.jsonl.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from swift.callbacks import TrainerCallback
from swift.utils import get_logger

from swift_vlrft.diagnostics.by_task import Scored, by_task
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.files.completions import further
from swift_vlrft.parsing.answers import text_of
from swift_vlrft.rewards import REWARDS

logger = get_logger()

LOGGED = ("reward", "length", "parse_rate", "zero_variance", "share")


class WatchTasks(TrainerCallback):
    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.tasks: set[str] = set()
        self.kept: set[str] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        score = self.trainer._score_completions

        def _score_completions(samples: Any) -> Any:
            samples = score(samples)
            self._log(samples)
            return samples

        self.trainer._score_completions = _score_completions

    def _log(self, samples: Any) -> None:
        """All processes take part: what they hold is put together in the order of the rewards."""
        trainer = self.trainer
        own = [(self._scored(one), further(one.extra)) for one in samples]
        rows = trainer._gather_and_flatten(own, flatten_level=0)
        self._keep([columns for _, columns in rows])
        rewards = trainer._rewards_per_func
        if len(rewards) != len(rows):
            return
        weighted = rewards * trainer.reward_weights.unsqueeze(0)
        sums = weighted.nansum(1).tolist()
        none = rewards.isnan().all(1).tolist()
        scored = [
            one._replace(reward=None if nothing else value)
            for (one, _), value, nothing in zip(rows, sums, none, strict=True)
        ]
        found = by_task(one for one in scored if one.task)
        self.tasks |= found.keys()
        if len(self.tasks) < 2:
            return
        metrics = trainer._metrics["train" if trainer.model.training else "eval"]
        for task, figures in found.items():
            for name in LOGGED:
                if (value := getattr(figures, name)) is not None:
                    # ms-swift's GRPO trainer averages these values into its next log line.
                    metrics[f"tasks/{task}/{name}"].append(value)

    def _scored(self, sample: Any) -> Scored:
        """All but the reward, which is known of all processes together."""
        task, was_read = str(sample.extra.get("task") or ""), None
        try:
            for name in self.trainer.reward_func_names:
                if name in REWARDS and (of := REWARDS[name].task) is not None and of.name == task:
                    answer = text_of(sample.messages[-1]["content"])
                    solution = sample.extra.get("solution")
                    was_read = explain(name, answer, solution, **further(sample.extra)).was_read
                    break
        except Exception as error:
            logger.warning_once(f"swift_vlrft: parse rates are not complete: {error!r}")
        # Of several turns it is a list of lists.
        turns = sample.response_token_ids or ()
        length = sum(len(turn) if isinstance(turn, (list, tuple)) else 1 for turn in turns)
        return Scored(task, sample.prompt_id, None, length, was_read)

    def _keep(self, columns: list[dict[str, Any]]) -> None:
        """One value per completion in the trainer's table of completions, as for the solution."""
        logs = self.trainer._logs
        self.kept |= {key for row in columns for key in row}
        for key in sorted(self.kept):
            if key not in logs:  # rows of earlier batches had no such column
                logs[key] = deque([None] * len(logs["completion"]), logs["completion"].maxlen)
            logs[key].extend(row.get(key) for row in columns)
