"""A training that is followed; what is learnt: end_to_end/test_demo.py."""

import json
import os
import time

import pytest

from swift_vlrft.demo import training as training_module
from swift_vlrft.demo.training import TrialError, training


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Stands for a command of ms-swift: a script that writes what it would log into OUT."""
    monkeypatch.setattr(training_module, "POLL", 0.02)
    return lambda text: ["bash", "-c", f'set -e; mkdir -p "$OUT"\n{text}']


def test_steps_come_as_they_are_logged(script, tmp_path):
    keys = ("rewards/vlrft_classification/mean", "rewards/vlrft_format/mean")
    rewards = [(0.25, 1.0), (0.5, 0.875)]
    logged = [{"loss": 0.0, **dict(zip(keys, pair, strict=True))} for pair in rewards]
    logged.append({"loss": 0.0, keys[1]: 0.5})  # a step without a row of the other task
    logged = [row | {"global_step/max_steps": f"{n}/3"} for n, row in enumerate(logged, 1)]
    summary = {"train_runtime": 3.5, "global_step/max_steps": "3/3"}
    rows = "".join(json.dumps(line) + "\n" for line in [*logged, summary])
    half = len(rows) - 190  # the second line is not whole yet
    out = tmp_path / "grpo"
    command = script(
        f"printf '%s' '{rows[:half]}' > $OUT/logging.jsonl; sleep 0.2\n"
        f"printf '%s' '{rows[half:]}' >> $OUT/logging.jsonl; sleep 0.1\n"
    )
    with training(command, out, OUT=str(out)) as steps:
        assert list(steps) == logged


def test_a_failed_run_says_how_its_output_ends(script, tmp_path):
    out = tmp_path / "grpo"
    with (
        pytest.raises(TrialError, match=r"(?s)code 3; \S+grpo.log .*out of cheese"),
        training(script("echo out of cheese; exit 3"), out, OUT=str(out)) as steps,
    ):
        list(steps)


def test_a_trial_that_stops_takes_its_training_along(script, tmp_path):
    out = tmp_path / "grpo"
    file = out / "pid"
    with (
        pytest.raises(KeyboardInterrupt),
        training(script("sleep 600 & echo $! > $OUT/pid; wait"), out, OUT=str(out)),
    ):
        while not (file.exists() and file.read_text().strip()):
            time.sleep(0.02)
        raise KeyboardInterrupt
    for _ in range(2000):
        try:
            os.kill(int(file.read_text()), 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError("the training goes on")
