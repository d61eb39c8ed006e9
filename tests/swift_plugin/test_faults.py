"""What ends a run early, without a run: tests/end_to_end/test_faults_processes.py has those."""

from types import SimpleNamespace

import pytest
import torch
from files.test_checkpoints import KINDS, write

from swift_vlrft.swift_plugin.faults import MOST_LEFT_OUT, Faults, how_to_go_on, not_finite

pytestmark = pytest.mark.slow  # ms-swift is imported


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


class SwiftsTrainer:
    def __init__(self, folder):
        self.args = SimpleNamespace(ddp_timeout=600, process_index=0, output_dir=str(folder))
        self.state = SimpleNamespace(global_step=3)

    def log(self, logs, start_time=None):
        pass


class Trainer(Faults, SwiftsTrainer):
    pass


def test_a_run_of_updates_that_are_left_out_ends(tmp_path):
    trainer = Trainer(tmp_path)
    for logs in [{"grad_norm": float("nan")}] * (MOST_LEFT_OUT - 1) + [{"grad_norm": 0.5}, {}]:
        trainer.log(logs)
    for _ in range(MOST_LEFT_OUT - 1):
        trainer.log({"grad_norm": "inf"})
    with pytest.raises(FloatingPointError):
        trainer.log({"grad_norm": float("nan")})


def test_checkpoints_of_an_earlier_run_are_no_way_on(tmp_path):
    """With --add_version false they lie in the same folder."""
    checkpoint = tmp_path / "checkpoint-4"
    write(checkpoint, KINDS["lora"])
    saved = (checkpoint / "trainer_state.json").stat().st_mtime
    assert how_to_go_on(tmp_path, saved - 1).endswith(f"--resume_from_checkpoint {checkpoint}")
    assert "start it again" in how_to_go_on(tmp_path, saved + 1)
