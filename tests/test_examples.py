"""examples/ runs as it stands."""

import ast
import importlib
import json
import random
import subprocess
import sys

import pytest
from PIL import Image
from support.swift_run import REPOSITORY, run_python

from swift_vlrft.demo.mixed import demo_rows, mixed_rows
from swift_vlrft.tiny.checkpoint import write_tiny

EXAMPLES = REPOSITORY / "examples"
IMPORT = """
import sys
from swift.utils import import_external_file
for plugin in sys.argv[1].split(","):
    import_external_file(plugin)
del sys.argv[1]
"""
PLUGIN = str(REPOSITORY / "plugins" / "vlrft.py")


@pytest.mark.slow
def test_a_reward_of_your_own():
    then = """
from swift.rewards import orms
print(orms["short_answer"]()(["<answer>4</answer>", "no answer"]))
"""
    done = run_python(IMPORT + then, f"{PLUGIN},{EXAMPLES / 'my_reward.py'}")
    assert "[1.0, 0.0]" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_data_set_of_your_own(tmp_path):
    (tmp_path / "shelf").mkdir()
    Image.new("RGB", (400, 300), (200, 30, 30)).save(tmp_path / "shelf" / "17.jpg")
    record = {"photo": "shelf/17.jpg", "ask": "the red mug", "rect": [120, 40, 310, 260]}
    path = tmp_path / "shelf.jsonl"
    path.write_text(json.dumps(record) + "\n")
    then = """
from swift.dataset import load_dataset
(row,) = load_dataset([sys.argv[2]])[0]
print(row["task"], row["solution"])
"""
    flags = ("--dataset", str(path), "--reward_funcs", "vlrft_grounding_iou")
    done = run_python(IMPORT + then, f"{EXAMPLES / 'my_dataset.py'},{PLUGIN}", *flags)
    assert "grounding <answer>[300, 133, 775, 867]</answer>" in done.stdout, done.stderr


@pytest.mark.slow
def test_rewards_in_trls_own_trainer(tmp_path):
    write_tiny("qwen2_5_vl", tmp_path / "model")
    # In a process without ms-swift, which gives TRL's trainer another base class.
    command = [sys.executable, EXAMPLES / "trl_trainer.py", tmp_path / "model", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    steps = [
        ast.literal_eval(line) for line in done.stdout.splitlines() if line[:10] == "{'rewards/"
    ]
    assert len(steps) == 2, done.stderr[-2000:]
    for name in ("vlrft_counting", "vlrft_format"):
        assert all(0 <= step[f"rewards/{name}/mean"] <= 1 for step in steps)


def test_rewards_as_verls_compute_score(monkeypatch):
    """Equal to REWARDS, for the gold and for a wrong answer of each task."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    verl_reward = importlib.import_module("verl_reward")
    for row in [*mixed_rows(random.Random(0), 24), *demo_rows(random.Random(0), 12)]:
        task = row.columns["task"]
        for text in (row.seen, row.solution, "<answer>none of it</answer>", "no tags"):
            scored = verl_reward.compute_score(task, text, row.solution, dict(row.columns))
            columns = {name: [value] for name, value in row.columns.items()}
            reward = verl_reward.BY_TASK[task]
            assert [scored] == reward([text], [row.solution], **columns)
            assert reward.task.name == task and 0 <= scored <= 1
    assert verl_reward.compute_score("x", "<answer>b</answer>", "a", {"task": "ocr"}) == 0.0
    with pytest.raises(ValueError, match="is no task; known: .*detection"):
        verl_reward.compute_score("refcoco", "<answer>4</answer>", "4")
