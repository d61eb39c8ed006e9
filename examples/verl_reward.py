"""Our rewards as verl calls one: ``compute_score`` of a file that its configuration names.

    python -m verl.trainer.main_ppo ... \\
        reward.custom_reward_function.path=examples/verl_reward.py \\
        reward.custom_reward_function.name=compute_score

(in older releases without ``reward.``). It hands over one completion at a time, with the row's
``data_source`` (here the task), ``reward_model.ground_truth`` and ``extra_info``. It wants a
number, so a gold solution that cannot be read, which is logged, scores 0; `vlrft data check` finds
those beforehand.
"""

from typing import Any

from swift_vlrft.rewards import REWARDS, score

BY_TASK = {
    reward.task.name: reward
    for reward in (REWARDS[name] for name in reversed(REWARDS))
    if reward.task is not None and reward.recommended and not reward.scores_format
}
"""The first reward of each task."""


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None
) -> float:
    """Of one completion; ``extra_info`` may hold ``task``, ``aliases``, ``tolerance``."""
    extra = extra_info or {}
    task = extra.get("task") or data_source
    if task not in BY_TASK:
        raise ValueError(f"data_source {task!r} is no task; known: {', '.join(BY_TASK)}")
    reward = BY_TASK[task]
    names = ("response_prefix", *reward.takes)  # the rest is verl's, or of the data set
    columns = {name: extra[name] for name in names if name in extra}
    return score(reward.__name__, solution_str, ground_truth, task=task, **columns) or 0.0
