"""A GRPO run that cannot go on ends early, and ends well: there is nothing to switch on.

    NaN or infinity in the weights   the run ends before a checkpoint holds them
    NaN or infinity in gradients     ms-swift leaves the step out, without a word: said here, and
                                     the run ends after 20 logged ones in a row
    a rank that hangs                after --ddp_timeout seconds each rank says where, and ends
    a rollout server that has ended  is named, and its engine is asked before weights are sent
    any error                        the last complete checkpoint and the flag that goes on
    a rank that torchrun ends        says where it stood

Without --ddp_timeout it is two hours (trainer.py). SIGTERM (a node is taken back) is ms-swift's:
--callbacks graceful_exit, in every recipe.
"""

from __future__ import annotations

import faulthandler
import math
import os
import shlex
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from swift.utils import get_logger
from torch import distributed

from swift_vlrft.files.checkpoints import STATE, checkpoints, why_not
from swift_vlrft.swift_plugin.mixin import SwiftsTrainer
from swift_vlrft.swift_plugin.rollout_server import what_is_wrong

GRACE = 5
"""Seconds from the message of a rank that hangs to the list of its calls, and its end."""
MOST_LEFT_OUT = 20
ADVICE = (
    "Look at the rewards of this step (inf?), then at a lower --learning_rate, and at bfloat16 "
    "instead of float16; a run that continues unchanged fails here again"
)

logger = get_logger()


class Faults(SwiftsTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._left_out = 0
        self._begun = time.time()
        self._timer = threading.Timer(0, lambda: None)
        super().__init__(*args, **kwargs)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        with self._watched():
            return super().train(*args, **kwargs)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._move_on()
        # Where nobody handles it, as --callbacks graceful_exit does: torchrun ends the others of a
        # rank that failed.
        if alone := signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            faulthandler.register(signal.SIGTERM, file=2, all_threads=False, chain=True)
        try:
            yield
        except BaseException as error:
            self._say_fault(
                f"ended by {type(error).__name__}: {textwrap.shorten(str(error), 200)}", 30
            )
            raise
        finally:
            self._timer.cancel()
            faulthandler.cancel_dump_traceback_later()
            if alone:
                faulthandler.unregister(signal.SIGTERM)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        self._move_on()
        return super().training_step(*args, **kwargs)

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        self._move_on()
        return super().prediction_step(*args, **kwargs)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> Any:
        self._move_on()
        bad = not_finite(self.model)
        if self._on_any_rank(bool(bad)):
            where = (
                f"{bad[0]} and {len(bad) - 1} more weights" if bad else "a weight of another rank"
            )
            raise FloatingPointError(
                f"NaN or infinity in {where}; no checkpoint holds them. {ADVICE}"
            )
        return super()._maybe_log_save_evaluate(*args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        super().log(logs, *args, **kwargs)
        if (logged := logs.get("grad_norm")) is None:
            return
        norm = float(logged)
        self._left_out = 0 if math.isfinite(norm) else self._left_out + 1
        if self._left_out == 1:
            logger.warning(
                f"swift_vlrft: step {self.state.global_step}: grad_norm is {norm}: its update is "
                f"left out. {ADVICE}"
            )
        if self._left_out == MOST_LEFT_OUT:
            raise FloatingPointError(
                f"grad_norm was no number in {MOST_LEFT_OUT} logged steps in a row. {ADVICE}"
            )

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Save a checkpoint; an earlier run's of the same step is marked incomplete first.

        Half of it, written over, must not be taken for the whole.
        """
        if self.args.should_save:
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            (folder / STATE).unlink(missing_ok=True)
        result = super()._save_checkpoint(*args, **kwargs)
        self._move_on()
        return result

    def _move_model_to_vllm(self, *args: Any, **kwargs: Any) -> Any:
        """Ask the servers whether they are alive before weights go there; not amid a rollout."""
        client = getattr(self, "vllm_client", None)
        asks = client is not None and not self.args.async_generate
        if asks and (wrong := what_is_wrong(client, self.args.vllm_server_timeout)):
            raise ConnectionError(wrong)
        return super()._move_model_to_vllm(*args, **kwargs)

    def _on_any_rank(self, flag: bool) -> bool:
        """Return whether ``flag`` is true on any rank; all ranks ask at the same point."""
        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            return flag
        both = torch.tensor(int(flag), device=self.accelerator.device)
        distributed.all_reduce(both, op=distributed.ReduceOp.MAX)
        return bool(both.item())

    def _move_on(self) -> None:
        """Start the clock of --ddp_timeout anew."""
        self._timer.cancel()
        self._timer = threading.Timer(self.args.ddp_timeout, self._say_late)
        self._timer.daemon = True
        self._timer.start()
        # This one does not need Python's lock, which a regular expression, say, keeps for itself.
        faulthandler.dump_traceback_later(self.args.ddp_timeout + GRACE, exit=True, file=2)

    def _say_late(self) -> None:
        self._say_fault(
            f"nothing has moved for {self.args.ddp_timeout} seconds (--ddp_timeout): this rank "
            "hangs, or waits for a rank that does. What each rank was doing follows",
            GRACE - 1,
        )

    def _say_fault(self, what: str, seconds: float) -> None:
        """Print the fault, how to go on, and what a rollout server answers within ``seconds``."""
        step = self.state.global_step
        text = f"swift_vlrft: rank {self.args.process_index}, step {step}: {what}. "
        os.write(2, f"\n{text}{how_to_go_on(Path(self.args.output_dir), self._begun)}\n".encode())
        client = getattr(self, "vllm_client", None)
        if client is not None and (wrong := what_is_wrong(client, seconds)):
            os.write(2, f"swift_vlrft: {wrong}. Start it again before you go on\n".encode())


def not_finite(model: torch.nn.Module) -> list[str]:
    """Return the names of the trained weights with NaN or infinity in this rank's share."""
    # ds_tensor is ZeRO-3's share, _local_tensor FSDP's.
    shares = {
        name: getattr(weight, "_local_tensor", getattr(weight, "ds_tensor", weight)).detach()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }
    norm = torch.nn.utils.get_total_norm(list(shares.values()))  # a float16 norm may be too large
    if torch.isfinite(norm):
        return []
    return [name for name, share in shares.items() if not torch.isfinite(share).all()]


def how_to_go_on(run: Path, since: float) -> str:
    """Name the last complete checkpoint, incomplete ones after it, and the flag to go on.

    With --add_version false an earlier run's are in the folder, too: saved before ``since``.
    """
    text = ""
    with suppress(OSError, ValueError):
        for folder in reversed(checkpoints(run)):
            if why := why_not(folder):
                text += f"{folder.name} is not complete: {why}. "
            elif (folder / STATE).stat().st_mtime >= since:
                flag = f"--resume_from_checkpoint {shlex.quote(str(folder))}"
                return f"{text}The last complete checkpoint is {folder.name}; go on with: {flag}"
    return f"{text}This run has no complete checkpoint in {run}: start it again as before"
