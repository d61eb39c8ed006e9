"""The trainer of `vlrft agree`: the class that the run trains with, and it compares.

Import this when the run's plugins are loaded: the class is made of the one that ms-swift has
registered by then.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from swift.trainers.trainer_factory import TrainerFactory

from swift_vlrft.swift_plugin.agreement.comparison import ComparisonMixin

RunTrainer: Any = TrainerFactory.get_trainer_cls(SimpleNamespace(rlhf_type="grpo"))


class ComparisonTrainer(ComparisonMixin, RunTrainer):  # type: ignore[misc]
    """Compares with the engine where the run's trainer would train."""
