"""Rewards that see their own logged means, and their whole group, in two processes and resumed."""

from pathlib import Path

import pytest
from PIL import Image
from support.swift_run import DEEPSPEED_ON_CPU, REPOSITORY, Run, run_grpo
from support.written_sets import write_rows

pytestmark = pytest.mark.end_to_end

PLUGINS = [
    Path(__file__).parent / "plugins" / "seen.py",
    REPOSITORY / "examples" / "group_reward.py",
]


@pytest.fixture
def rows(tmp_path) -> Path:
    """Rows that differ in their pictures alone, and one of another task."""
    shared = {
        "problem": "Where is it? Give [x1, y1, x2, y2]. Answer in <answer> </answer>.",
        "frame": "norm1000",
    }
    shared |= {"solution": "[0, 0, 100, 100]", "task": "detection"}
    lines = []
    for n in range(6):
        Image.new("RGB", (56, 56), (40 * n, 0, 0)).save(tmp_path / f"{n}.png")
        lines.append(shared | {"image": f"{n}.png"} | ({"task": "grounding"} if n == 5 else {}))
    return write_rows(tmp_path / "rows.jsonl", *lines)


def test_a_resumed_run_keeps_its_threshold_and_groups_are_whole(tiny_qwen2_5_vl, rows, tmp_path):
    def run(name: str, steps: int, *more: str) -> Run:
        names = "adaptive", "of_three_others", "vlrft_detection_iou_adaptive", "boxes_agree"
        return run_grpo(
            *(tiny_qwen2_5_vl, rows, tmp_path / name, "--reward_funcs", *names),
            *("--deepspeed", "zero2", "--fp16", "false", "--bf16", "false"),
            *("--save_strategy", "steps", "--save_steps", "7", "--max_steps", str(steps)),
            *("--per_device_train_batch_size", "4", "--max_completion_length", "4", *more),
            plugins=PLUGINS,
            **DEEPSPEED_ON_CPU,
            NPROC_PER_NODE="2",
        )

    first = run("first", 7)
    rest = run("rest", 12, "--resume_from_checkpoint", str(tmp_path / "first" / "checkpoint-7"))
    # IoU 0.8: over 0.5 for five steps and over 0.75 for five more, then under 0.9.
    seen = first.metric("rewards/adaptive/mean") + rest.metric("rewards/adaptive/mean")
    assert seen == pytest.approx([0.8] * 10 + [0.0] * 2)
    for part in (first, rest):
        assert set(part.metric("rewards/of_three_others/mean")) == {1.0}
