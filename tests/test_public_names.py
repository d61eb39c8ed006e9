"""What ``import swift_vlrft`` offers, and what it must not bring in."""

import importlib
import re
from pathlib import Path

import pytest

import swift_vlrft

ROOT = Path(__file__).resolve().parents[1]


def test_public_names_are_listed_and_others_are_an_error():
    assert {"REWARDS", "check", "evaluate", "plan", "register"} <= set(dir(swift_vlrft))
    with pytest.raises(AttributeError, match="rewards_of"):
        _ = swift_vlrft.rewards_of


def test_check_says_what_is_wrong_with_a_recipe(tmp_path):
    (tmp_path / "a.sh").write_text("swift rlhf --rlhf_type grpo --reward_funcs vlrft_countin\n")
    texts = [finding.text for finding in swift_vlrft.check(tmp_path / "a.sh")]
    assert "--model is missing" in texts and "--dataset is missing" in texts


@pytest.mark.slow
def test_the_listed_names_are_there():
    table = (ROOT / "docs" / "reference" / "python.md").read_text()
    for line in table.splitlines():
        if line.startswith("| `swift_vlrft"):
            module, *names = re.findall(r"`(\w[\w.]*)`", line)
            assert all(hasattr(importlib.import_module(module), name) for name in names), line
