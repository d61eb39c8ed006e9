"""The first and the third table of docs/project/faults.md: processes that die, rewards and
numbers that go wrong, in the real `swift rlhf` on two processes. plugins/fault.py makes the faults.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from end_to_end.rollout_server import rollout_server, served_by
from psutil import Process
from support.own import free_port
from support.swift_run import (
    COLOCATED,
    DEEPSPEED_ON_CPU,
    VLLM_ON_CPU,
    grpo_command,
    run_command,
)
from transformers.trainer_utils import get_last_checkpoint

from swift_vlrft.files.checkpoints import good_checkpoints

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]

PLUGINS = [Path(__file__).parent / "plugins" / "fault.py"]
FLAGS = (
    *("--reward_funcs", "judge", "vlrft_format", "--callbacks", "fault", "graceful_exit"),
    *("--tuner_type", "lora", "--save_strategy", "steps", "--save_steps", "1"),
)


@dataclass
class Ended:
    code: int
    output: str
    out: Path

    @property
    def good(self) -> list[str]:
        return [folder.name for folder in good_checkpoints(self.out)]

    def named(self, cause: str) -> None:
        """The run ended with an error; cause and command are there to read."""
        ours = "\n".join(line for line in self.output.splitlines() if "swift_vlrft: " in line)
        assert self.code != 0 and cause in self.output, ours + self.output[-6000:]
        last = good_checkpoints(self.out)[-1].name
        assert f"The last complete checkpoint is {last}" in self.output
        flag = f"--resume_from_checkpoint {self.out / last}"
        assert f"go on with: {flag}\n" in self.output


@pytest.fixture
def with_fault(tiny_qwen2_5_vl, shapes, tmp_path):
    """A run in which ``fault`` happens; "" for none. Its time is bounded: no rank waits on."""

    def run(fault: str, *flags: str, **variables: str) -> Ended:
        folder = tmp_path / "out"
        flags = (*FLAGS, *flags)
        command = grpo_command(tiny_qwen2_5_vl, shapes, folder, *flags, plugins=PLUGINS)
        variables = {"NPROC_PER_NODE": "2", "VLRFT_TEST_FAULT": fault} | variables
        done = run_command(command, **variables)
        return Ended(done.returncode, done.stdout, folder)

    return run


def digests(folder: Path) -> dict[str, str]:
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}


@pytest.mark.parametrize(
    ("phase", "flags", "variables"),
    [
        ("rollout", (), {}),
        ("backward", ("--deepspeed", "zero2", "--torch_dtype", "bfloat16"), DEEPSPEED_ON_CPU),
        ("sync", COLOCATED, VLLM_ON_CPU),
    ],
)
def test_a_rank_is_killed(phase, flags, variables, with_fault):
    ended = with_fault(f"{phase} kill 1 2", *flags, **variables)
    assert f"fault: kill in {phase}" in ended.output
    # torchrun names the rank that ended first, and what ended it.
    root = ended.output.partition("Root Cause (first observed failure)")[2]
    assert "rank      : 1 " in root and "Signal 9 (SIGKILL)" in root
    ended.named("swift_vlrft: rank 0, step 1: ended by RuntimeError")
    assert ended.good == ["checkpoint-1"]


def test_killed_while_saving_then_resumed_then_preempted(with_fault):
    ended = with_fault("save kill 0 2")
    ended.named("checkpoint-2 is not complete: trainer_state.json, which is written last")
    assert ended.good == ["checkpoint-1"]
    assert Path(get_last_checkpoint(ended.out)).name == "checkpoint-2"  # half of one
    assert (ended.out / "last-checkpoint").resolve().name == "checkpoint-1"
    before = digests(ended.out / "checkpoint-1")

    half = with_fault("", "--resume_from_checkpoint", str(ended.out / "checkpoint-2"))
    assert half.code != 0 and "checkpoint-2 is not complete" in half.output
    assert f"Give {ended.out / 'checkpoint-1'}" in half.output

    # SIGTERM on one rank: both save the same step, over the half, and end.
    good = ("--resume_from_checkpoint", str(ended.out / "checkpoint-1"))
    resumed = with_fault("rollout term 1 2", *good, "--save_steps", "100")
    assert resumed.code == 0, resumed.output[-6000:]
    assert resumed.good == ["checkpoint-1", "checkpoint-2"]
    assert not (ended.out / "checkpoint-3").exists()
    assert digests(ended.out / "checkpoint-1") == before


def test_a_rank_that_is_ended_says_where_it_stood(with_fault):
    """Without graceful_exit: torchrun ends the rank that waits for the killed one."""
    ended = with_fault("rollout term 0 2", "--callbacks", "fault")
    assert "Signal 15 (SIGTERM)" in ended.output and ended.code != 0
    assert "(most recent call first)" in ended.output and "in strike" in ended.output
    assert ended.good == ["checkpoint-1"]


def test_a_rollout_server_is_killed(with_fault, tiny_qwen2_5_vl, tmp_path):
    """The engine of one amid a rollout, which vLLM's client waits for: --ddp_timeout ends that. A
    second one, started meanwhile, serves the run that goes on, until it is killed itself, which
    ends it at once.
    """
    ports = first, second = free_port(), free_port()

    def with_server(fault: str, port: str, process: Process, *more: str) -> Ended:
        variables = {"VLRFT_TEST_SERVER": "1", "VLRFT_TEST_SERVER_PIDS": str(process.pid)}
        ended = with_fault(fault, *served_by(port), *more, **VLLM_ON_CPU, **variables)
        assert f"the rollout server at http://127.0.0.1:{port} " in ended.output
        return ended

    with ExitStack() as servers, ThreadPoolExecutor(1) as pool:
        one, other = (rollout_server(tiny_qwen2_5_vl, port, tmp_path / port) for port in ports)
        http, worker, engine, *_ = servers.enter_context(one)
        starting = pool.submit(servers.enter_context, other)
        ended = with_server("rollout server 0 2", first, engine, "--ddp_timeout", "60")
        ended.named("nothing has moved for 60 seconds")
        assert http.is_running() and worker.is_running() and not engine.is_running()
        assert ended.good == ["checkpoint-1"]

        good = ("--resume_from_checkpoint", str(ended.out / "checkpoint-1"))
        ended = with_server("rollout server 0 3", second, starting.result()[0], *good)
        ended.named(f"{second} does not answer any more")
        assert ended.good == ["checkpoint-1", "checkpoint-2"]


@pytest.mark.parametrize(
    ("fault", "flags", "named"),
    [
        ("rollout worker 1 2", "--dataloader_num_workers 1", "is killed by signal: Killed"),
        ("reward raise 1 2", "", "ended by KeyError: \"the judge's answer has no 'score'\""),
        # In a regular expression, which keeps Python's lock: no thread of Python could end it.
        ("reward hang 1 2", "--ddp_timeout 40", "nothing has moved for 40 seconds (--ddp_timeout)"),
        ("backward inf 1 2", "", "step 2: ended by FloatingPointError: NaN or infinity in "),
    ],
)
def test_a_run_ends_and_says_why(fault, flags, named, with_fault):
    ended = with_fault(fault, *flags.split())
    ended.named(named)
    assert ended.good == ["checkpoint-1"]
    assert "in judge" in ended.output or "reward" not in fault  # what the rank was doing


@pytest.mark.parametrize("fault", ["backward nan 1 2", "reward inf 1 2"])
def test_nan_in_gradients_or_the_loss_is_left_out(fault, with_fault):
    ended = with_fault(fault, "--max_steps", "2")
    assert ended.code == 0, ended.output[-6000:]
    assert "step 2: grad_norm is nan: its update is left out" in ended.output
    first, second = (ended.out / name / "adapter_model.safetensors" for name in ended.good)
    assert first.read_bytes() == second.read_bytes()
