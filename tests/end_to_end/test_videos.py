"""Rows of videos through ms-swift's GRPO, and what its trainer and vLLM see of them."""

import json
import shlex

import pytest
from end_to_end.test_agreement import agree
from end_to_end.test_shared_prefix_training import ON, SAYS
from support.clips import clip_rows
from support.nightly import first_now
from support.swift_run import grpo_command, run_grpo
from support.written_sets import write_rows

from swift_vlrft.tiny.checkpoint import write_tiny

pytestmark = pytest.mark.end_to_end


def test_grpo_on_drawn_clips(tmp_path):
    write_tiny("qwen2_5_vl", tmp_path / "model")
    rows = clip_rows(tmp_path / "clips", 8)
    data = write_rows(tmp_path / "clips" / "rows.jsonl", *rows)
    rewards = ("vlrft_temporal_iou", "vlrft_temporal_format", "coin")
    flags = ("--reward_funcs", *rewards, "--max_steps", "2")
    trained = run_grpo(tmp_path / "model", data, tmp_path / "out", *flags, **ON)
    assert len(trained.steps) == 2
    assert (
        SAYS + "a micro-batch is computed as ms-swift does it: it holds videos." in trained.output
    )
    assert "qwen-vl-utils using pyav" in trained.output
    golds = {row["solution"] for row in rows}
    for line in map(json.loads, (tmp_path / "out" / "completions.jsonl").open()):
        assert set(line["solution"]) <= golds and set(line["task"]) == {"temporal"}
        assert all("<video>When is the" in prompt for prompt in line["prompt"])


@pytest.mark.parametrize("family", first_now("qwen2_5_vl", "qwen3_vl", "qwen2_vl", "qwen3_5"))
def test_vllm_and_the_trainer_see_the_same_video(family, tmp_path):
    write_tiny(family, tmp_path / "model")
    data = write_rows(tmp_path / "rows.jsonl", *clip_rows(tmp_path, 4))
    flags = "--reward_funcs vlrft_temporal_iou --use_vllm true --vllm_mode colocate"
    flags += ' --vllm_max_model_len 512 --vllm_limit_mm_per_prompt {"video":1}'
    # vLLM has its linear attention for a CPU in bfloat16 alone.
    flags += " --torch_dtype bfloat16" if family == "qwen3_5" else ""
    command = grpo_command(tmp_path / "model", data, tmp_path / "out", *flags.split())
    given = (shlex.join(command), "--out", tmp_path / "agree", "--json")
    sizes = {"FPS_MAX_FRAMES": "8", "VIDEO_MAX_PIXELS": "3136", "VIDEO_MIN_PIXELS": "784"}
    found = agree(*given, "--rows", "4", "--tokens", "8", code=0, **sizes)
    assert found["word"] == "agrees", found
    assert {*found["figures"]} == {"as loaded, video rows", "after the sync, video rows"}
