"""Log peak memory and seconds per phase of a step, by ms-swift: VLRFT_TRACK_MEMORY=1.

    memory/rollout_allocated_gib  memory/forward_allocated_gib  memory/backward_allocated_gib  ...
    memory/rollout_seconds  memory/forward_seconds  ...

The largest memory of each since the start, on this process's GPU (torch's allocated and reserved
memory), and its seconds in the step, for which the GPU is waited for at the end of every phase.
Without a GPU only the resident memory of the process is known: memory/<phase>_rss_gib.
`vlrft plan` prints the same phases; what it calls allocated, less vLLM's, is torch's.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import psutil
import torch
from swift.callbacks import TrainerCallback

GIB = 2**30


class MemoryCallback(TrainerCallback):
    """Reads and resets torch's peak counters when a step goes from one phase to the next.

    A pass with gradients is `forward`; from its end to the end of the micro-batch is `backward`
    (with the loss; under DeepSpeed also the optimizer's step, which backward() calls). A pass
    without gradients of the policy or the reference model is `log_probabilities`; all else
    (generation, rewards, weight synchronisation) is `rollout`.
    """

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.phase = "rollout"
        self.peaks: dict[str, float] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.since = time.perf_counter()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        model.register_forward_pre_hook(self._before)
        model.register_forward_hook(self._after)
        if (reference := self.trainer.ref_model) is not None:
            # Full tuning has a copy; LoRA's reference is the model with its adapters off.
            reference.register_forward_pre_hook(lambda *_: self._enter("log_probabilities"))
            reference.register_forward_hook(lambda *_: self._enter("rollout"))
        self._enter("rollout")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("rollout")
        self.seconds.clear()  # of evaluation and saving between two steps

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("rollout")

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("optimizer_step")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("rollout")
        seconds = {f"{phase}_seconds": value for phase, value in self.seconds.items()}
        for name, value in (self.peaks | seconds).items():
            # ms-swift's GRPO trainer averages these values into its next log line.
            self.trainer._metrics["train"][f"memory/{name}"].append(value)
        self.seconds.clear()

    def _before(self, model: Any, _: Any) -> None:
        if model.training:
            self._enter("forward" if torch.is_grad_enabled() else "log_probabilities")

    def _after(self, model: Any, *_: Any) -> None:
        if model.training:
            self._enter("backward" if torch.is_grad_enabled() else "rollout")

    def _enter(self, phase: str) -> None:
        """Close the phase before ``phase``: read and reset the counters, add up its seconds."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # kernels run on after the call that launched them
            values = {"allocated": torch.cuda.max_memory_allocated()}
            values["reserved"] = torch.cuda.max_memory_reserved()
            torch.cuda.reset_peak_memory_stats()
        else:
            values = {"rss": psutil.Process().memory_info().rss}
        for kind, value in values.items():
            name = f"{self.phase}_{kind}_gib"
            self.peaks[name] = max(self.peaks.get(name, 0.0), value / GIB)
        now = time.perf_counter()
        self.seconds[self.phase] += now - self.since
        self.since, self.phase = now, phase
