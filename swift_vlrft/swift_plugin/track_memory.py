"""Log peak memory and seconds per phase of a step, by ms-swift: VLRFT_TRACK_MEMORY=1.

    memory/generation_card_gib  memory/forward_card_gib  memory/backward_card_gib  ...
    memory/generation_seconds  memory/forward_seconds  ...

The largest of each since the start, and its seconds in the step, for which the GPU is waited for at
the end of every phase. (ms-swift times some parts, too, for wandb and swanlab alone.) ``card`` is
what the whole GPU has in use, by whomever, as `nvidia-smi` says: `vlrft plan` prints the same
phases. (Torch's own figures count memory that sleeping vLLM has given back.) Without a GPU only
the resident memory of the process is known: memory/<phase>_rss_gib.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Event, Lock, Thread
from typing import Any

import psutil
import torch
from swift.callbacks import TrainerCallback

from swift_vlrft.swift_plugin.mixin import SwiftsTrainer

GIB = 2**30
SAMPLE_SECONDS = 0.05
"""Between two looks at the card: on an H100 the shortest peaks of a step lasted 0.2 s."""


class PeakMemory:
    """The largest value that ``used`` returned since the last call, sampled by one thread."""

    def __init__(self, used: Callable[[], int], seconds: float = SAMPLE_SECONDS) -> None:
        self.used, self.seconds, self.peak = used, seconds, 0
        self.ended, self.lock = Event(), Lock()
        Thread(target=self._watch, name="card memory", daemon=True).start()

    def _watch(self) -> None:
        while not self.ended.wait(self.seconds):
            with self.lock:
                self.peak = max(self.peak, self.used())

    def take(self) -> int:
        """Return the peak, in bytes, and begin anew."""
        with self.lock:
            now = self.used()
            peak, self.peak = max(self.peak, now), now
            return peak


def card_memory(device: int) -> int:
    """Return the bytes in use on a GPU, by whomever."""
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free)


class MemoryCallback(TrainerCallback):
    """Reads and resets the peaks when a step goes from one phase to the next.

    A pass with gradients is `forward`; from its end to the end of the micro-batch is `backward`
    (with the loss; under DeepSpeed also the optimizer's step, which backward() calls). A pass
    without gradients of the policy or the reference model is `log_probabilities`. `generation` and
    `weight_sync` are methods of ms-swift's; `sleep_and_wake` is what else it does around them with
    a colocated engine, offloads included; all else (rewards, encoding) is `rest`.
    """

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.phase = "rest"
        self.peaks: dict[str, float] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.since = time.perf_counter()
        self.sampled: PeakMemory | None = None
        if torch.cuda.is_available():
            # A new thread's own device would be the first one.
            self.sampled = PeakMemory(partial(card_memory, torch.cuda.current_device()))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        model.register_forward_pre_hook(self._before)
        model.register_forward_hook(self._after)
        if (reference := self.trainer.ref_model) is not None:
            # Full tuning has a copy; LoRA's reference is the model with its adapters off.
            reference.register_forward_pre_hook(lambda *_: self._enter("log_probabilities"))
            reference.register_forward_hook(lambda *_: self._enter("rest"))
        self._enter("rest")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.sampled is not None:
            self.sampled.ended.set()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("rest")
        self._forget()  # of evaluation and saving between two steps

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("rest")

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("optimizer_step")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._enter("rest")
        seconds = {f"{phase}_seconds": value for phase, value in self.seconds.items()}
        for name, value in (self.peaks | seconds).items():
            # ms-swift's GRPO trainer averages these values into its next log line.
            self.trainer._metrics["train"][f"memory/{name}"].append(value)
        self._forget()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Count the block as a phase of its own, inside of the one before."""
        before = self.phase
        self._enter(phase)
        try:
            yield
        finally:
            self._enter(before)

    def _forget(self) -> None:
        """Begin a step: a phase that it does not enter took no seconds of it."""
        self.seconds.update(dict.fromkeys(self.seconds, 0.0))

    def _before(self, model: Any, _: Any) -> None:
        if model.training:
            self._enter("forward" if torch.is_grad_enabled() else "log_probabilities")

    def _after(self, model: Any, *_: Any) -> None:
        if model.training:
            self._enter("backward" if torch.is_grad_enabled() else "rest")

    def _enter(self, phase: str) -> None:
        """Close the phase before ``phase``: read and reset the peaks, add up its seconds."""
        for kind, value in self._take().items():
            name = f"{self.phase}_{kind}_gib"
            self.peaks[name] = max(self.peaks.get(name, 0.0), value / GIB)
        now = time.perf_counter()
        self.seconds[self.phase] += now - self.since
        self.since, self.phase = now, phase

    def _take(self) -> dict[str, int]:
        """Map kinds of memory to the peaks since the last call, in bytes."""
        if self.sampled is None:
            return {"rss": psutil.Process().memory_info().rss}
        torch.cuda.synchronize()  # kernels run on after the call that launched them
        return {"card": self.sampled.take()}


class TimedRollout(SwiftsTrainer):
    """Tells the callback which part of a rollout runs."""

    tracked: MemoryCallback | None = None

    def _during(self, phase: str) -> AbstractContextManager[None]:
        if self.tracked is None or self.args.async_generate:  # in the background
            return nullcontext()
        return self.tracked.during(phase)

    def _fast_infer(self, samples: Any) -> Any:
        with self._during("sleep_and_wake" if self.vllm_mode == "colocate" else "rest"):
            return super()._fast_infer(samples)

    def _move_model_to_vllm(self, *args: Any, **kwargs: Any) -> None:
        with self._during("weight_sync"):
            super()._move_model_to_vllm(*args, **kwargs)

    def _engine_infer(self, *args: Any, **kwargs: Any) -> Any:
        with self._during("generation"):
            return super()._engine_infer(*args, **kwargs)
