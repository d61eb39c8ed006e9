"""A further plugin: what goes wrong in a run, where and when, as VLRFT_TEST_FAULT says.

    "rollout kill 1 2"      the PHASE, what happens, on which rank, in which step

Phases: rollout, sync, backward, save, reward, step (its end). What happens there: `kill` and `term`
(real signals), `worker` (its data worker is killed), `server` (the processes
VLRFT_TEST_SERVER_PIDS are, a second later: amid the request that follows), `raise`, `hang` (without
Python's lock ever being free), `nan` and `inf` (a number).
"""

import multiprocessing
import os
import re
import signal
from threading import Timer

import torch
from swift.callbacks import TrainerCallback, callbacks_map
from swift.rewards import orms

PHASE, WHAT, RANK, STEP = (os.environ.get("VLRFT_TEST_FAULT") or "none none -1 -1").split()
HERE = os.environ.get("RANK", "0") == RANK
now = {"step": 0}


def happens(phase: str) -> bool:
    return HERE and phase == PHASE and now["step"] == int(STEP)


def strike(phase: str) -> None:
    if not happens(phase) or WHAT in ("nan", "inf"):
        return
    print(f"fault: {WHAT} in {phase}", flush=True)
    if WHAT == "raise":
        raise KeyError("the judge's answer has no 'score'")
    if WHAT == "hang":
        re.match(r"(a+)+$", "a" * 60 + "b")
    if WHAT == "worker":
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)
    elif WHAT == "server":
        for pid in map(int, os.environ["VLRFT_TEST_SERVER_PIDS"].split()):
            os.kill(pid, signal.SIGSTOP)  # so that no answer comes before
            Timer(1, os.kill, (pid, signal.SIGKILL)).start()
    else:
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM}[WHAT])


def before(place: object, name: str, phase: str, when=lambda *_: True) -> None:
    """``phase`` begins where ``place.name`` is called."""
    real = getattr(place, name)

    def call(*given, **named):
        if when(*given):
            strike(phase)
        return real(*given, **named)

    setattr(place, name, call)


class Fault(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        now["step"] = state.global_step
        model = kwargs["model"]
        generating = [m for m in model.modules() if hasattr(m, "generation_config")][-1]
        calls = iter(range(1, 10**9))  # the third of a rollout: amid its tokens
        generating.register_forward_pre_hook(
            lambda *_: None if torch.is_grad_enabled() or next(calls) % 3 else strike("rollout")
        )
        (weight, *_) = [w for w in model.parameters() if w.requires_grad]
        weight.register_hook(self._gradient)
        if hasattr(self.trainer, "_move_model_to_vllm"):
            before(self.trainer, "_move_model_to_vllm", "sync")
        if getattr(self.trainer, "vllm_client", None) is not None:
            before(self.trainer.vllm_client, "infer", "rollout")
        before(torch, "save", "save", lambda _, file, *__: str(file).endswith("optimizer.pt"))

    def _gradient(self, gradient):
        strike("backward")
        return gradient + float(WHAT) if happens("backward") else gradient

    def on_step_begin(self, args, state, control, **kwargs):
        now["step"] = state.global_step + 1

    def on_step_end(self, args, state, control, **kwargs):
        strike("step")


def judge(completions, **_):
    strike("reward")
    if happens("reward"):
        return [float(WHAT)] * len(completions)
    return [float(n % 2) for n in range(len(completions))]


callbacks_map["fault"] = Fault
orms["judge"] = lambda args=None, **_: judge
