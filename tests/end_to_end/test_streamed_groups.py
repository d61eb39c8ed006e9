"""GRPO with ``--streaming true``: two processes, groups of the same prompt, two epochs, resumed."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from support.sharded_rows import write_shards
from support.swift_run import SUPPORT, grpo_command, run_swift

pytestmark = pytest.mark.end_to_end

GENERATIONS = 4
FLAGS = (
    *("--streaming", "true", "--num_train_epochs", "2", "--max_steps", "-1"),
    *("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"),
    *("--num_iterations", "2", "--num_generations", str(GENERATIONS)),
    *("--reward_funcs", "vlrft_classification", "vlrft_format", "seen", "coin"),
    *("--reward_weights", "0", "0", "1", "0", "--save_only_model", "false"),
)
BROKEN = (1, 7)


def groups(file: Path) -> list[list[int]]:
    """The rows' numbers of every rollout, over both processes, in order."""
    calls = defaultdict(list)
    for line in map(json.loads, file.read_text().splitlines()):
        calls[line["rank"]].append(line["numbers"])
    return [[n for part in both for n in part] for both in zip(*calls.values(), strict=True)]


def test_a_streamed_set_trains_in_groups(tiny_qwen2_5_vl, tmp_path):
    data = write_shards(tmp_path / "set", 3, 4, group=2, broken=BROKEN)
    plugins = [SUPPORT / "seen_rows.py", SUPPORT / "coin.py"]
    whole = tmp_path / "whole"
    command = grpo_command(tiny_qwen2_5_vl, data, whole, plugins, *FLAGS)
    command += ["--save_strategy", "steps", "--save_steps", "8"]
    two = {"NPROC_PER_NODE": "2"}
    run = run_swift(command, whole, **two, VLRFT_TEST_SEEN=str(tmp_path / "whole.jsonl"))
    rollouts = groups(tmp_path / "whole.jsonl")
    # 12 rows by 2 a rollout, in two epochs; each rollout serves two steps.
    assert len(rollouts) == 12 and len(run.steps) == 24
    shown = []
    for numbers in rollouts:
        parts = [numbers[i : i + GENERATIONS] for i in range(0, len(numbers), GENERATIONS)]
        assert len(parts) == 2 and all(len(set(part)) == 1 for part in parts)
        shown += [part[0] for part in parts]
    # The reward is the row's number: a group of one prompt has no spread.
    assert all(step["frac_reward_zero_std"] == 1 for step in run.steps)
    for epoch in (shown[:12], shown[12:]):
        assert set(range(12)) - set(epoch) == set(BROKEN)
        assert len(epoch) == 12 and epoch != sorted(epoch)
    assert shown[:12] != shown[12:]
    assert "row 1: " in run.output and "left out" in run.output

    command += ["--resume_from_checkpoint", str(whole / "checkpoint-16")]
    again = tmp_path / "again.jsonl"
    resumed = run_swift(command, whole, **two, VLRFT_TEST_SEEN=str(again))
    assert groups(again) == rollouts[8:]
    assert resumed.steps[-1]["step"] if "step" in resumed.steps[-1] else True
