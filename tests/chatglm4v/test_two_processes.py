"""A process whose batch holds no image must not stop the one whose batch does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from chatglm4v.reading import lively_model
from chatglm4v.two_processes import RATE, STEPS, inputs_of
from support.own import free_port
from support.swift_run import ON_CPU, forking

pytestmark = pytest.mark.nightly


def losses_in_one_process():
    """The same steps with the mean of both gradients, and an evaluation."""
    model, losses = lively_model().train(), [[], []]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        for rank in (0, 1):
            loss = model.train(step < STEPS)(**inputs_of(rank)).loss
            (loss / 2).backward()
            losses[rank].append(loss.item())
        optimizer.step()
    return torch.tensor(losses)


@pytest.mark.parametrize("kind", ["ddp", "zero3"])
def test_one_of_two_processes_has_no_image(kind):
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    script = str(Path(__file__).with_name("two_processes.py"))
    done = subprocess.run(
        [*launch, "--master_port", free_port(), script, kind],
        env=os.environ | ON_CPU | forking(),
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    losses = json.loads(done.stdout.splitlines()[-1])
    assert losses[0][-1] < losses[0][0]
    torch.testing.assert_close(torch.tensor(losses), losses_in_one_process(), atol=1e-3, rtol=0)
