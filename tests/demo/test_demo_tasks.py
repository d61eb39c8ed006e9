"""The demo's pictures, and a training that is followed; what is learnt: end_to_end/test_demo.py."""

import io
import json
import os
import random
import time

import numpy as np
import pytest
from PIL import Image

from swift_vlrft.demo import training as training_module
from swift_vlrft.demo.sign import DIGITS, sign_rows
from swift_vlrft.demo.training import TrialError, reward_curve, training
from swift_vlrft.zoom.crops import cut, shown


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
        assert list(steps) == [*enumerate(logged, 1)]
    assert reward_curve(out, "vlrft_classification") == {1: 0.25, 2: 0.5}
    assert reward_curve(out, "vlrft_format") == {1: 1.0, 2: 0.875, 3: 0.5}


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


def _nearest(train, test):
    """The share of pictures whose nearest mean of a digit is their own: no network, no training."""
    means = {digit: np.mean([a for a, d in train if d == digit], 0) for digit in DIGITS}
    found = [min(means, key=lambda digit: np.square(a - means[digit]).sum()) for a, _ in test]
    return np.mean([one == digit for one, (_, digit) in zip(found, test, strict=True)])


def test_a_digit_is_read_from_its_crop_and_hardly_from_afar(monkeypatch):
    monkeypatch.setenv("MAX_PIXELS", str(84 * 84))
    near, far, ink = [], [], {digit: [] for digit in DIGITS}
    for row in sign_rows(random.Random(0), 400):
        digit, box = row.solution[len("<answer>")], json.loads(row.columns["zoom_box"])
        part = cut(box, row.image.size, "norm1000")
        crop = Image.open(io.BytesIO(shown(row.image, part))).convert("L").resize((84, 84))
        small = row.image.resize((84, 84), Image.Resampling.BICUBIC).convert("L")
        x, y = (round(side * 84 / 1000) for side in box[:2])
        sign = np.asarray(small.crop((x, y, x + 4, y + 4)), float)
        near.append((np.asarray(crop, float)[21:63, 21:63], digit))
        far.append((sign, digit))
        ink[digit].append(sign.sum())
    assert _nearest(near[:200], near[200:]) == 1.0
    assert _nearest(far[:200], far[200:]) < 0.5, "a quarter is chance"
    means = [np.mean(values) for values in ink.values()]
    assert max(means) - min(means) < 0.5 * np.std(sum(ink.values(), []))
