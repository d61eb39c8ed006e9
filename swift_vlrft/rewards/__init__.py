"""Every reward by name. A new one is a function in a file of its task, and a line here."""

from collections.abc import Callable

from swift_vlrft.rewards.choice import CHOICE, YES_NO, vlrft_choice, vlrft_yes_no
from swift_vlrft.rewards.classification import CLASSIFICATION, vlrft_classification
from swift_vlrft.rewards.contract import Scores, Task
from swift_vlrft.rewards.counting import COUNTING, vlrft_counting, vlrft_counting_soft
from swift_vlrft.rewards.detection import (
    vlrft_detection_confidence,
    vlrft_detection_f1,
    vlrft_detection_format,
    vlrft_detection_iou,
    vlrft_detection_iou_dynamic,
)
from swift_vlrft.rewards.detection_map import vlrft_detection_map, vlrft_detection_map50
from swift_vlrft.rewards.format import vlrft_format
from swift_vlrft.rewards.grounding import (
    GROUNDING,
    vlrft_grounding_acc50,
    vlrft_grounding_giou,
    vlrft_grounding_iou,
)
from swift_vlrft.rewards.matching import DETECTION
from swift_vlrft.rewards.paper import vlrft_paper_confidence, vlrft_paper_iou

Reward = Callable[..., Scores]

_BY_TASK: list[tuple[Task | None, list[Reward]]] = [
    (
        DETECTION,
        [
            vlrft_detection_iou,
            vlrft_detection_confidence,
            vlrft_detection_map,
            vlrft_detection_map50,
            vlrft_detection_f1,
            vlrft_detection_iou_dynamic,
            vlrft_detection_format,
            vlrft_paper_iou,
            vlrft_paper_confidence,
        ],
    ),
    (GROUNDING, [vlrft_grounding_iou, vlrft_grounding_giou, vlrft_grounding_acc50]),
    (CLASSIFICATION, [vlrft_classification]),
    (COUNTING, [vlrft_counting, vlrft_counting_soft]),
    (CHOICE, [vlrft_choice]),
    (YES_NO, [vlrft_yes_no]),
    (None, [vlrft_format]),
]

REWARDS: dict[str, Reward] = {f.__name__: f for _, rewards in _BY_TASK for f in rewards}
"""``f(completions, solution, **columns) -> list[float | None]`` by the name that ms-swift logs."""

TASKS: dict[str, Task | None] = {f.__name__: task for task, rewards in _BY_TASK for f in rewards}
"""The task whose rows a reward scores; None: every row."""


TASK_NAMES: dict[str, Task] = {task.name: task for task in TASKS.values() if task is not None}
"""The tasks by the name that a row's ``task`` column holds."""
