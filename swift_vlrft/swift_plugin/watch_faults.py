"""What ends a GRPO run early, and that it ends well: nothing to switch on.

    SIGTERM (a node is taken back)   all ranks end after this step, with a checkpoint; status 143
    NaN or infinity in the weights   the run ends before a checkpoint holds them
    NaN or infinity in gradients     ms-swift leaves the step out, without a word: said here, and
                                     the run ends after 20 logged ones in a row
    a rank that hangs                after --ddp_timeout seconds each rank says where, and ends
    a rollout server that has ended  is named, and its engine is asked before weights are sent
    any error                        the last complete checkpoint and the command that goes on

Without --ddp_timeout it is two hours (callbacks.py).
"""

from __future__ import annotations

import faulthandler
import math
import os
import shlex
import signal
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from swift.callbacks import TrainerCallback
from swift.utils import get_logger
from torch import distributed

from swift_vlrft.files.checkpoints import STATE, why_not
from swift_vlrft.recipe.record import own_checkpoints, record_of_run
from swift_vlrft.swift_plugin.rollout_server import ask_before_each_sync, what_is_wrong

GRACE = 5
"""Seconds from the message of a rank that hangs to the list of its calls, and its end."""
MOST_LEFT_OUT = 20
ADVICE = (
    "Look at the rewards of this step (inf?), then at a lower --learning_rate, and at bfloat16 "
    "instead of float16; a run that goes on unchanged comes here again"
)

logger = get_logger()


class WatchFaults(TrainerCallback):
    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.asked = self.ending = False
        self.left_out = 0
        self.timer = threading.Timer(0, lambda: None)

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        train = self.trainer.train

        def _train(*given: Any, **named: Any) -> Any:
            with self._watching():
                result = train(*given, **named)
            if self.ending:
                self._say("ended by SIGTERM", 1)
                raise SystemExit(128 + signal.SIGTERM)
            return result

        self.trainer.train = _train
        ask_before_each_sync(self.trainer)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        jit = getattr(self.args, "enable_jit_checkpoint", False)
        others = jit or "graceful_exit" in self.args.callbacks
        catching = not others and threading.current_thread() is threading.main_thread()
        if catching:
            before = signal.signal(signal.SIGTERM, self._on_sigterm)
        self._move_on()
        try:
            yield
        except BaseException as error:
            self._say(f"ended by {type(error).__name__}: {textwrap.shorten(str(error), 200)}", 30)
            raise
        finally:
            self.timer.cancel()
            faulthandler.cancel_dump_traceback_later()
            if catching:
                signal.signal(signal.SIGTERM, before)

    def _on_sigterm(self, *_: Any) -> None:
        if not self.asked:
            self.asked = True
            # Not print: the signal may have come in the middle of one.
            os.write(
                2, b"\nswift_vlrft: SIGTERM: if no rank is lost, a checkpoint follows this step\n"
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._move_on()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._move_on()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._move_on()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._move_on()
        bad = not_finite(kwargs["model"])
        asked, lost = self._any_rank(self.asked, bool(bad))
        if lost:
            where = (
                f"{bad[0]} and {len(bad) - 1} more weights" if bad else "a weight of another rank"
            )
            raise FloatingPointError(
                f"NaN or infinity in {where}; no checkpoint holds them. {ADVICE}"
            )
        if asked and state.global_step < state.max_steps:
            self.ending = control.should_save = control.should_training_stop = True
            control.should_evaluate = False
        self._not_complete_yet(state, control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if (logged := (logs or {}).get("grad_norm")) is None:
            return
        norm = float(logged)
        self.left_out = 0 if math.isfinite(norm) else self.left_out + 1
        if self.left_out == 1:
            logger.warning(
                f"swift_vlrft: step {state.global_step}: grad_norm is {norm}: its update is left "
                f"out. {ADVICE}"
            )
        if self.left_out == MOST_LEFT_OUT:
            raise FloatingPointError(
                f"grad_norm was no number in {MOST_LEFT_OUT} logged steps in a row. {ADVICE}"
            )

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._not_complete_yet(state, control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._move_on()
        if (
            not self.ending
            and self._any_rank(self.asked)[0]
            and state.global_step < state.max_steps
        ):
            self.ending = control.should_training_stop = True

    def _any_rank(self, *flags: bool) -> list[bool]:
        """Which flags hold on any rank; all ranks ask at the same point."""
        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            return list(flags)
        both = torch.tensor(flags, dtype=torch.int32, device=self.trainer.accelerator.device)
        distributed.all_reduce(both, op=distributed.ReduceOp.MAX)
        return list(map(bool, both.tolist()))

    def _not_complete_yet(self, state: Any, control: Any) -> None:
        """A checkpoint of this step that is there already, of a run that went on from an earlier
        one, is written over: half of it must not be taken for the whole.
        """
        if control.should_save and self.args.should_save:
            folder = Path(self.args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / STATE).unlink(missing_ok=True)

    def _move_on(self) -> None:
        """From here, the time that may pass until the next such point."""
        self.timer.cancel()
        self.timer = threading.Timer(self.args.ddp_timeout, self._say_late)
        self.timer.daemon = True
        self.timer.start()
        # This one does not need Python's lock, which a regular expression, say, keeps for itself.
        faulthandler.dump_traceback_later(self.args.ddp_timeout + GRACE, exit=True, file=2)

    def _say_late(self) -> None:
        self._say(
            f"nothing has moved for {self.args.ddp_timeout} seconds (--ddp_timeout): it hangs, or "
            "waits for one that does. What each rank was doing follows",
            GRACE - 1,
        )

    def _say(self, what: str, seconds: float) -> None:
        """What happened, how to go on, and what a rollout server answers within ``seconds``."""
        state = self.trainer.state
        text = f"swift_vlrft: rank {self.args.process_index}, step {state.global_step}: {what}. "
        os.write(2, f"\n{text}{how_to_go_on(Path(self.args.output_dir))}\n".encode())
        client = getattr(self.trainer, "vllm_client", None)
        if client is not None and (wrong := what_is_wrong(client, seconds)):
            os.write(2, f"swift_vlrft: {wrong}. Start it again before you go on\n".encode())


def not_finite(model: torch.nn.Module) -> list[str]:
    """The names of the trained weights with NaN or infinity in the share of this rank."""
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


def how_to_go_on(run: Path) -> str:
    """The last complete checkpoint of a run, those after it that are not, and the command."""
    text = ""
    with suppress(OSError, ValueError):
        for folder in reversed(own_checkpoints(run, record_of_run(run))):
            if not (why := why_not(folder)):
                command = f"vlrft resume {shlex.quote(str(run))}"
                return f"{text}The last complete checkpoint is {folder.name}; go on with: {command}"
            text += f"{folder.name} is not complete: {why}. "
    return f"{text}There is no complete checkpoint in {run}: start again"
