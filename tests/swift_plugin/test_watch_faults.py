"""What ends a run early, without a run: tests/end_to_end/test_faults_processes.py has those."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch
from files.test_checkpoints import KINDS, write

from swift_vlrft.recipe.record import earlier_checkpoints, record, write_record
from swift_vlrft.swift_plugin.watch_faults import (
    MOST_LEFT_OUT,
    WatchFaults,
    how_to_go_on,
    not_finite,
)


@pytest.mark.parametrize(
    ("value", "dtype", "finite"),
    [
        (float("nan"), torch.float32, False),
        (float("-inf"), torch.bfloat16, False),
        (60_000.0, torch.float16, True),  # the norm of two of them is infinity in 16 bits
        (3e38, torch.float32, True),
        (0.0, torch.float32, True),
    ],
)
def test_weights_that_are_not_finite(value, dtype, finite):
    model = torch.nn.Linear(2, 2).to(dtype)
    model.weight.data.fill_(value)
    assert not_finite(model) == ([] if finite else ["weight"])
    model.weight.requires_grad = False  # not trained: not ours to judge
    assert not_finite(model) == []


def watch(folder, **args):
    usual = {"callbacks": [], "ddp_timeout": 600, "process_index": 0, "output_dir": str(folder)}
    trainer = SimpleNamespace(state=SimpleNamespace(global_step=3))
    return WatchFaults(SimpleNamespace(**usual | args), trainer)


def test_a_run_of_updates_that_are_left_out_ends(tmp_path):
    watching, state = watch(tmp_path), SimpleNamespace(global_step=3)
    for logs in [{"grad_norm": float("nan")}] * (MOST_LEFT_OUT - 1) + [{"grad_norm": 0.5}, {}]:
        watching.on_log(None, state, None, logs=logs)
    for _ in range(MOST_LEFT_OUT - 1):
        watching.on_log(None, state, None, logs={"grad_norm": "inf"})
    with pytest.raises(FloatingPointError):
        watching.on_log(None, state, None, logs={"grad_norm": float("nan")})


def test_sigterm_waits_for_the_step_and_is_given_back(tmp_path):
    watching, before = watch(tmp_path), signal.getsignal(signal.SIGTERM)
    with watching._watching():
        for _ in range(2):  # to the rank itself, and from torchrun
            os.kill(os.getpid(), signal.SIGTERM)
        assert watching.asked
    assert signal.getsignal(signal.SIGTERM) is before
    assert watching.timer.finished.is_set()


@pytest.mark.parametrize("other", [{"callbacks": ["graceful_exit"]}, {"enable_jit_checkpoint": 1}])
def test_sigterm_is_left_to_others(other, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with watch(tmp_path, **other)._watching():
        assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_is_raised_on_and_followed_by_the_way_on(tmp_path, capfd):
    with pytest.raises(KeyError), watch(tmp_path)._watching():
        raise KeyError("score")
    assert "step 3: ended by KeyError: 'score'." in capfd.readouterr().err


def test_checkpoints_of_an_earlier_run_are_no_way_on(tmp_path):
    """--add_version false; `vlrft resume` does not take them either."""
    write(tmp_path / "checkpoint-4", KINDS["lora"])
    assert "checkpoint-4" in how_to_go_on(tmp_path)
    kept = record(["rlhf.py"], {}, gpus=0)
    kept.earlier = earlier_checkpoints(tmp_path, 0)
    write_record(tmp_path, kept)
    assert "checkpoint-4" not in how_to_go_on(tmp_path)
