"""ms-swift's own GRPO trainer with our rewards, timed: a plugin of gpu_recipe.py --stock."""

from typing import Any

from swift.rlhf_trainers import GRPOTrainer
from swift.trainers.trainer_factory import TrainerFactory

import swift_vlrft
from swift_vlrft.swift_plugin.track_memory import MemoryCallback, TimedRollout


class Stock(TimedRollout, GRPOTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tracked = MemoryCallback(self.args, self)
        self.add_callback(self.tracked)


swift_vlrft.register()
TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__name__}.Stock"
