"""Rows of videos through ms-swift's GRPO, and what its trainer and vLLM see of them."""

import json

import pytest
from end_to_end.test_model_evaluation import eval_command, run
from support.clips import clip_rows, write_rows
from support.swift_run import SUPPORT, grpo_command, run_swift

from swift_vlrft.tiny.checkpoint import write_tiny

pytestmark = pytest.mark.end_to_end


def test_grpo_on_drawn_clips(tmp_path):
    write_tiny("qwen2_5_vl", tmp_path / "model")
    rows = clip_rows(tmp_path / "clips", 8)
    data = write_rows(tmp_path / "clips" / "rows.jsonl", rows)
    rewards = ("vlrft_temporal_iou", "vlrft_temporal_format", "coin")
    flags = ("--reward_funcs", *rewards, "--max_steps", "2")
    command = grpo_command(
        tmp_path / "model", data, tmp_path / "out", [SUPPORT / "coin.py"], *flags
    )
    trained = run_swift(command, tmp_path / "out", VLRFT_SHARED_PREFIX="1")
    assert len(trained.steps) == 2
    assert all(0 <= value <= 1 for value in trained.metric("rewards/vlrft_temporal_iou/mean"))
    assert "qwen-vl-utils using pyav" in trained.output
    golds = {row["solution"] for row in rows}
    for line in map(json.loads, (tmp_path / "out" / "completions.jsonl").open()):
        assert set(line["solution"]) <= golds and set(line["task"]) == {"temporal"}
        assert all("<video>When is the" in prompt for prompt in line["prompt"])


def test_a_model_is_asked_about_drawn_clips(tmp_path):
    write_tiny("qwen2_5_vl", tmp_path / "model")
    data = write_rows(tmp_path / "rows.jsonl", clip_rows(tmp_path, 4))
    command = eval_command(tmp_path / "model", data, tmp_path / "out", "--task", "temporal")
    summary = run(command)
    assert summary["rows"] == 4 and summary["headline"] == "mean_iou"
    assert summary["metrics"]["r1_iou50"]["value"] == 0
