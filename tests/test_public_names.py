"""What ``import swift_vlrft`` offers, and what it must not bring in."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import swift_vlrft

ROOT = Path(__file__).resolve().parents[1]


def test_public_names_come_without_torch():
    code = (
        "import sys, swift_vlrft\n"
        "assert 'swift_vlrft.rewards' not in sys.modules\n"
        "import swift_vlrft.cli\n"
        "from swift_vlrft import REWARDS, check\n"
        "assert 'datasets' not in sys.modules\n"
        "from swift_vlrft import evaluate\n"
        "assert REWARDS['vlrft_counting'](['<answer>4</answer>'], ['4']) == [1.0]\n"
        "print(check('recipes/qwen2_vl_2b/classification_1x80g.sh'))\n"
        "print([m for m in ('torch', 'swift', 'transformers', 'vllm', 'trl') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n[]\n"


def test_public_names_are_listed_and_others_are_an_error():
    assert {"REWARDS", "check", "evaluate", "plan", "register"} <= set(dir(swift_vlrft))
    with pytest.raises(AttributeError, match="rewards_of"):
        _ = swift_vlrft.rewards_of


def test_check_says_what_is_wrong_with_a_recipe(tmp_path):
    (tmp_path / "a.sh").write_text("swift rlhf --rlhf_type grpo --reward_funcs vlrft_countin\n")
    texts = [finding.text for finding in swift_vlrft.check(tmp_path / "a.sh")]
    assert "--model is missing" in texts and "--dataset is missing" in texts


def test_evaluate_scores_existing_predictions(tmp_path):
    row = {"solution": "4", "task": "counting"}
    lines = [row | {"id": n, "completion": f"<answer>{n}</answer>"} for n in (4, 5)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    predictions = {"predictions": str(tmp_path / "p.jsonl"), "out": str(tmp_path / "out")}
    summary = swift_vlrft.evaluate(**predictions, bootstrap=0)
    assert summary.metrics["accuracy"].value == 0.5
    assert json.loads((tmp_path / "out/summary.json").read_text())["rows"] == 2
    with pytest.raises(ValueError, match="not both"):
        swift_vlrft.evaluate("model", **predictions)
    with pytest.raises(ValueError, match="--task"):
        swift_vlrft.evaluate("model", "data/held_out")


@pytest.mark.slow
def test_the_listed_names_are_there():
    table = (ROOT / "docs" / "reference" / "python.md").read_text()
    for line in table.splitlines():
        if line.startswith("| `swift_vlrft"):
            module, *names = re.findall(r"`(\w[\w.]*)`", line)
            assert all(hasattr(importlib.import_module(module), name) for name in names), line
