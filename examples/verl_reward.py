"""Our rewards as verl calls one: ``compute_score`` of a file that its configuration names.

    custom_reward_function.path=examples/verl_reward.py custom_reward_function.name=compute_score

verl hands over one completion at a time, with the row's ``data_source`` (here the task),
``reward_model.ground_truth`` and ``extra_info``. It wants a number, so a gold solution that cannot
be read, which is logged, scores 0; `vlrft data check` finds those beforehand.
"""

from typing import Any

from swift_vlrft.rewards import REWARDS

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
    columns = {key: [value] for key, value in (extra_info or {}).items()}
    task = (extra_info or {}).get("task") or data_source
    if task not in BY_TASK:
        raise ValueError(f"data_source {task!r} is no task; known: {', '.join(BY_TASK)}")
    (score,) = BY_TASK[task]([solution_str], [ground_truth], **columns | {"task": [task]})
    return 0.0 if score is None else score
