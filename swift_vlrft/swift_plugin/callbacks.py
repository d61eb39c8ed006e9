"""VLRFT_TRACK_MEMORY=1: peaks of memory per phase of a step, in ms-swift's own logs.

    memory/rollout_allocated_gib  memory/forward_allocated_gib  memory/backward_allocated_gib  ...

The largest of each since the run began, of this process's card (torch's allocated and reserved).
Without a card only the resident memory of the process is known: memory/<phase>_rss_gib.
`vlrft plan-compare RECIPE RUN_DIR` puts them beside the plan.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch
from swift.callbacks import TrainerCallback, callbacks_map
from swift.rlhf_trainers import GRPOConfig
from swift.trainers.trainer_factory import TrainerFactory
from swift.utils import get_logger

NAME = "vlrft_memory"
GIB = 2**30

logger = get_logger()


def track_memory() -> None:
    """Registers the callback and the arguments class that switches it on."""
    callbacks_map[NAME] = MemoryCallback
    TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = f"{__name__}.{TrackedGRPOConfig.__name__}"


class TrackedGRPOConfig(GRPOConfig):
    """GRPOConfig with one more callback: --callbacks would be one more thing to remember."""

    def _init_callbacks(self) -> None:
        super()._init_callbacks()
        if NAME not in self.callbacks:
            self.callbacks.append(NAME)


class MemoryCallback(TrainerCallback):
    """Reads and resets torch's peak counters where a step goes from one phase to the next.

    A pass of the model that will be differentiated is `forward`; from its end to the end of the
    micro-batch `backward` (the loss included; under DeepSpeed the optimizer's step too, which
    backward() calls). A pass without gradients of the training model, or of the reference model, is
    `log_probabilities`; all else, generation and rewards and weight synchronisation, is `rollout`.
    """

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.phase = "rollout"
        self.broken = False
        self.peaks: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        model.register_forward_pre_hook(self._before)
        model.register_forward_hook(self._after)
        reference = getattr(self.trainer, "ref_model", None)
        if isinstance(reference, torch.nn.Module):
            # Full tuning's own copy; LoRA's reference is the model with its adapters off.
            reference.register_forward_pre_hook(lambda *_: self._enter("log_probabilities"))
            reference.register_forward_hook(lambda *_: self._enter("rollout"))
        self._enter("rollout")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("rollout")

    on_substep_end = on_step_begin

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("optimizer_step")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("rollout")
        for name, value in self.peaks.items():
            # ms-swift's GRPO trainer averages what it finds here into its next log line.
            self.trainer._metrics["train"][f"memory/{name}"].append(value)

    def _before(self, model: Any, _: Any) -> None:
        if model.training:
            self._enter("forward" if torch.is_grad_enabled() else "log_probabilities")

    def _after(self, model: Any, *_: Any) -> None:
        if model.training:
            self._enter("backward" if torch.is_grad_enabled() else "rollout")

    def _enter(self, phase: str) -> None:
        """Reads, resets, goes on; a reading that fails ends the tracking, never the run."""
        if self.broken:
            return
        try:
            self._read()
        except Exception as error:
            self.broken = True
            logger.warning(f"swift_vlrft: VLRFT_TRACK_MEMORY stops here: {error}")
        self.phase = phase

    def _read(self) -> None:
        if torch.cuda.is_available():
            values = {
                "allocated": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(),
            }
            torch.cuda.reset_peak_memory_stats()
        else:
            values = {"rss": psutil.Process().memory_info().rss}
        for kind, value in values.items():
            name = f"{self.phase}_{kind}_gib"
            self.peaks[name] = max(self.peaks.get(name, 0.0), value / GIB)
