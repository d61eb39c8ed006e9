"""A run that was killed and goes on gives the rows, rewards and weights of one that was not."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from support.nightly import first_now
from support.swift_run import (
    COLOCATED,
    DEEPSPEED_ON_CPU,
    VLLM_ON_CPU,
    Run,
    grpo_command,
    run_command,
    run_grpo,
    run_swift,
)

from swift_vlrft.files.checkpoints import good_checkpoints

pytestmark = pytest.mark.end_to_end

PLUGINS = [Path(__file__).parent / "plugins" / "token_sum.py"]
# 16 rows in pairs of completions.
FLAGS = (
    *("--reward_funcs", "vlrft_classification", "token_sum", "--num_generations", "2"),
    *("--max_completion_length", "4", "--lr_scheduler_type", "linear", "--save_strategy", "steps"),
    *("--fp16", "false", "--bf16", "false"),  # with DeepSpeed ms-swift takes fp16 for float32
)
TWO_PROCESSES = DEEPSPEED_ON_CPU | {"NPROC_PER_NODE": "2", "VLRFT_SHARED_PREFIX": "1"}
LOGGED = ("loss", "grad_norm", "kl", "learning_rate", "reward", "rewards/token_sum/mean")


def metrics(folder: Path) -> dict[int, list[float | None]]:
    """What is logged of every step."""
    rows = [row for row in Run("", folder).rows if "grad_norm" in row]
    return {
        int(row["global_step/max_steps"].split("/")[0]): [row.get(name) for name in LOGGED]
        for row in rows
    }


def completions(folder: Path) -> dict[str, dict[str, list]]:
    """By step: the rows, by their solutions, and every completion with its reward."""
    tables = map(json.loads, (folder / "completions.jsonl").read_text().splitlines())
    columns = ("solution", "completion", "token_sum", "advantages")
    return {t["step"][0]: {name: t[name] for name in columns} for t in tables if t["step"]}


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for file in checkpoint.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def assert_the_same(whole: Path, rest: Path, *, last: int, first: int) -> None:
    """``rest`` begins with the step ``first`` and logged it as ``whole`` did, to the last bit."""
    expected = {step: row for step, row in metrics(whole).items() if step >= first}
    assert metrics(rest) == expected and len(expected) == last - first + 1
    rows = completions(rest)
    assert rows and rows == {step: completions(whole)[step] for step in rows}
    trained, resumed = (weights(f / f"checkpoint-{last}") for f in (whole, rest))
    assert trained.keys() == resumed.keys() and trained
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in trained.items())


def killed(command: list[str], folder: Path) -> Path:
    """The folder of a run whose process got SIGKILL once it had a checkpoint."""
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(run_command, command)
        while not (found := [r for r in folder.glob("v0-*") if good_checkpoints(r)]):
            assert not ending.done(), ending.result().stdout[-6000:]
            time.sleep(0.02)
        alive = psutil.Process().children(recursive=True)
        trainers = [child for child in alive if str(folder) in child.cmdline()]
        assert trainers
        for trainer in trainers:
            trainer.kill()
        assert ending.result().returncode != 0
    return found[0]


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tiny_qwen2_5_vl, shapes, tmp_path):
    """All weights without DeepSpeed, from the middle of the first epoch into the second."""

    def command(folder: Path) -> list[str]:
        flags = (*FLAGS, "--max_steps", "6", "--save_steps", "3", "--add_version", "true")
        flags += ("--per_device_train_batch_size", "8")
        return grpo_command(tiny_qwen2_5_vl, shapes, folder, *flags, plugins=PLUGINS)

    run_swift(command(tmp_path / "whole"), tmp_path)
    broken = killed(command(tmp_path / "broken"), tmp_path / "broken")
    assert [f.name for f in good_checkpoints(broken)] == ["checkpoint-3"]
    flag = ("--resume_from_checkpoint", str(broken / "checkpoint-3"))
    run_swift([*command(tmp_path / "broken"), *flag], tmp_path)
    (whole,), (rest,) = (tmp_path / "whole").iterdir(), (tmp_path / "broken").glob("v1-*")
    assert_the_same(whole, rest, first=4, last=6)


@pytest.mark.parametrize(("tuner", "deepspeed"), first_now(("lora", "zero2"), ("full", "zero3")))
def test_two_processes_with_shared_prefixes(tuner, deepspeed, tiny_qwen2_5_vl, shapes, tmp_path):
    def run(name: str, *more: str) -> Path:
        flags = ("--tuner_type", tuner, "--deepspeed", deepspeed, "--lora_dropout", "0", *more)
        flags += (*FLAGS, "--per_device_train_batch_size", "2", "--max_steps", "3")
        model, out = tiny_qwen2_5_vl, tmp_path / name
        return run_grpo(model, shapes, out, *flags, plugins=PLUGINS, **TWO_PROCESSES).folder

    whole = run("whole", "--save_steps", "1")
    checkpoint = whole / "checkpoint-2"
    rest = run("rest", "--save_steps", "9", "--resume_from_checkpoint", str(checkpoint))
    assert_the_same(whole, rest, first=3, last=3)


def test_vllm_has_the_weights_of_the_step_before_and_of_the_checkpoint(
    tiny_qwen2_5_vl, shapes, tmp_path
):
    """With this rate a model without the trained weights is far off: the engine's log-probabilities
    and the trainer's would differ.
    """

    def run(name: str, *more: str) -> Run:
        flags = (*FLAGS, *COLOCATED, "--log_rollout_offpolicy_metrics", "true", *more)
        flags += ("--learning_rate", "1e-2", "--max_steps", "3", "--save_steps", "2")
        model, out = tiny_qwen2_5_vl, tmp_path / name
        return run_grpo(model, shapes, out, *flags, plugins=PLUGINS, **VLLM_ON_CPU)

    whole = run("whole")
    rest = run("rest", "--resume_from_checkpoint", str(whole.folder / "checkpoint-2"))
    assert completions(rest.folder)["3"]["solution"] == completions(whole.folder)["3"]["solution"]
    assert [row["global_step/max_steps"] for row in whole.steps + rest.steps] == [
        *("1/3", "2/3", "3/3", "3/3")
    ]
    for one in (whole, rest):
        assert all(abs(value) < 1e-2 for value in one.metric("rollout_correction/k3_kl"))
    assert 0 < rest.metric("kl")[0] == pytest.approx(whole.metric("kl")[-1], rel=0.5)
