"""The trainer of this package: ms-swift's GRPO trainer, and what a run needs beyond it.

    shared_prefixes.py      each prompt and image of a micro-batch once (VLRFT_SHARED_PREFIX=1)
    vision_tokens.py        no answer holds an image token
    columns.py              what rewards read stays with the completions
    faults.py               no rank waits forever, no checkpoint with NaN or half written
    track_memory.py         seconds and memory of each part of a step (VLRFT_TRACK_MEMORY=1)
    resuming.py             a run that goes on is the run that was not interrupted

Each overrides methods of ms-swift's trainer and calls them; registered through TrainerFactory.
"""

from __future__ import annotations

import copyreg
from pathlib import Path
from typing import Any

import torch
from swift.rlhf_trainers import GRPOConfig, GRPOTrainer

from swift_vlrft.files.environment import is_on
from swift_vlrft.swift_plugin.columns import Columns
from swift_vlrft.swift_plugin.command_line import running_run
from swift_vlrft.swift_plugin.faults import Faults
from swift_vlrft.swift_plugin.resuming import Resume
from swift_vlrft.swift_plugin.shared_prefixes import SharedPrefixes
from swift_vlrft.swift_plugin.track_memory import MemoryCallback, TimedRollout
from swift_vlrft.swift_plugin.vision_tokens import VisionTokens

SWIFTS_TIMEOUT = 18_000_000
"""ms-swift 4.6.0's default of --ddp_timeout, in seconds."""
TIMEOUT = 7_200


class VlrftGRPOConfig(GRPOConfig):
    """GRPO's settings, with two hours for --ddp_timeout; ms-swift's default is 208 days.

    A folder that ModelScope did not make has no name there to ask for; without a network that takes
    seven seconds.
    """

    def __post_init__(self) -> None:
        if self.ddp_timeout == SWIFTS_TIMEOUT:  # type: ignore[has-type]
            self.ddp_timeout = TIMEOUT
        model = Path(running_run().text("model") or "")
        if model.is_dir() and not (model / ".mdl").exists():
            self.check_model = False
        super().__post_init__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as GRPOConfig: training_args.bin of a checkpoint opens without this package."""
        return copyreg._reconstructor, (GRPOConfig, object, None), self.__dict__  # type: ignore[attr-defined]


class VlrftGRPOTrainer(VisionTokens, SharedPrefixes, Columns, Faults, TimedRollout, GRPOTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.accelerator.device.type == "cpu":
            # The optimizer's states of tokens that no row has fall below what a float holds, and a
            # CPU takes a hundred times as long with such numbers.
            torch.set_flush_denormal(True)
        self.add_callback(Resume(self.args, self))
        if is_on("VLRFT_TRACK_MEMORY"):
            self.tracked = MemoryCallback(self.args, self)
            self.add_callback(self.tracked)

    def go_on(self, step: int) -> None:
        """Count micro-batches from ``step`` on; ms-swift counts from 0."""
        self._step = step
