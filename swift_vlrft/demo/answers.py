"""What a checkpoint's answers on held-out images are worth."""

from __future__ import annotations

from swift_vlrft.demo.tasks import DemoTask, Row
from swift_vlrft.rewards import REWARDS


def score_answers(task: DemoTask, rows: list[Row], answers: list[str]) -> list[float]:
    scores = REWARDS[task.reward](answers, [row.solution for row in rows])
    return [score or 0.0 for score in scores]
