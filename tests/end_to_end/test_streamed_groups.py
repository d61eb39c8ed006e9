"""GRPO with ``--streaming true``: two processes, groups of the same prompt, two passes, resumed."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from support.sharded_rows import write_shards
from support.swift_run import SUPPORT, grpo_command, run_swift

pytestmark = pytest.mark.end_to_end

GENERATIONS = 4
FLAGS = (
    *("--streaming", "true", "--max_steps", "8", "--truncation_strategy", "delete"),
    *("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "3"),
    *("--num_iterations", "2", "--num_generations", str(GENERATIONS)),
    *("--reward_funcs", "vlrft_classification", "vlrft_format", "seen", "coin"),
    *("--reward_weights", "0", "0", "1", "0", "--save_only_model", "false"),
)
BROKEN = {1}


def groups(file: Path) -> list[list[int]]:
    """The rows' numbers of every rollout, over both processes, in order."""
    calls = defaultdict(list)
    for line in map(json.loads, file.read_text().splitlines()):
        calls[line["rank"]].append(line["numbers"])
    return [
        [n for part in both for n in part]
        for both in zip(*(calls[rank] for rank in sorted(calls)), strict=True)
    ]


def test_a_streamed_set_trains_in_groups(tiny_qwen2_5_vl, tmp_path):
    data = write_shards(tmp_path / "set", 3, 3, group=2, broken=BROKEN)
    plugins = [Path(__file__).parent / "plugins" / "seen_rows.py", SUPPORT / "coin.py"]
    whole = tmp_path / "whole"
    command = grpo_command(tiny_qwen2_5_vl, data, whole, plugins, *FLAGS)
    command += ["--save_strategy", "steps", "--save_steps", "6"]
    two = {"NPROC_PER_NODE": "2"}
    run = run_swift(command, whole, **two, VLRFT_TEST_SEEN=str(tmp_path / "whole.jsonl"))
    rollouts = groups(tmp_path / "whole.jsonl")
    # 8 good rows by 3 a rollout; each rollout serves two steps. A process holds 6 of the 12
    # answers of a rollout, so that the second group lies in both.
    assert len(rollouts) == 4 and sum("loss" in row for row in run.rows) == 8
    shown = []
    for numbers in rollouts:
        parts = [numbers[i : i + GENERATIONS] for i in range(0, len(numbers), GENERATIONS)]
        assert len(parts) == 3 and all(len(set(part)) == 1 for part in parts)
        shown += [part[0] for part in parts]
    # The reward is the row's number: a group of one prompt has no spread.
    assert all(step["frac_reward_zero_std"] == 1 for step in run.steps)
    for one_pass in (shown[:6], shown[6:]):
        assert len(set(one_pass)) == 6 and not set(one_pass) & BROKEN
    assert shown[:6] != shown[6:]
    assert f"left out: {data}/train-00000-of-00003.parquet, row 1: " in run.output

    command += ["--resume_from_checkpoint", str(whole / "checkpoint-6")]
    again = tmp_path / "again.jsonl"
    run_swift(command, whole, **two, VLRFT_TEST_SEEN=str(again))
    assert groups(again) == rollouts[3:]
