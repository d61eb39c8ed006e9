"""Offer our rewards as metrics of supervised training.

swift sft --predict_with_generate true --eval_metric vlrft_classification ...
{"eval_vlrft_classification": 0.75, ...}
"""

from __future__ import annotations

from typing import Any

from swift.metrics.base import EvalMetrics
from swift.utils import Serializer

from swift_vlrft.rewards import RewardFunction


def metric_of(name: str, reward: RewardFunction) -> type[EvalMetrics]:
    """Return the mean score of the answers that evaluation generates, against the rows' answers."""

    class Mean(EvalMetrics):
        def compute_metrics(self, eval_prediction: Any) -> dict[str, float]:
            both = eval_prediction.predictions, eval_prediction.label_ids
            answers, golds = ([Serializer.from_tensor(row) for row in rows] for rows in both)
            scores = [score for score in reward(answers, golds) if score is not None]
            return {name: sum(scores) / len(scores)} if scores else {}

    return Mean
