"""Predictions of every format, as `vlrft eval --predictions` and `vlrft compare` read them."""

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

from fuzz import mutate, rewards
from fuzz.completions import lines, logged
from fuzz.target import clean, refused

from swift_vlrft.commands.output import printable
from swift_vlrft.evaluation.compare import compare
from swift_vlrft.evaluation.predictions import EvaluationError, read_predictions
from swift_vlrft.evaluation.summary import summarise
from swift_vlrft.files.records import as_json, strict_json
from swift_vlrft.parsing import answers
from swift_vlrft.rewards import TASK_NAMES

ROWS = 60
SECONDS, SHARE = 20.0, 2


def ours(rng: random.Random, task: str, n: int) -> dict[str, Any]:
    return {
        "id": str(n),
        "completion": rewards.completion(rng),
        "solution": rng.choice(rewards.GOLDS[task]),
        "image_id": str(n // 2),
        "category": rng.choice(["dog", "cat"]),
        "frame": rng.choice(["norm1000", "pixels"]),
        "width": 640,
        "height": 480,
        "prompt": "Detect all objects belonging to the category 'dog' in the image.",
        "task": task,
    }


def of_a_log(rng: random.Random, task: str, n: int) -> dict[str, Any]:
    return logged(rng, rewards.GOLDS[task], task=[task])


def detections(rng: random.Random) -> bytes:
    rows = [
        {"image_id": n, "category_id": n % 3, "bbox": [n, n, 10.5, 20], "score": rng.random()}
        for n in range(rng.randint(0, ROWS))
    ]
    content = json.dumps([mutate.value(rng, row) if rng.random() < 0.5 else row for row in rows])
    return mutate.raw(rng, content.encode(), 2) if rng.random() < 0.2 else content.encode()


def make(rng: random.Random) -> tuple[str, bytes]:
    if rng.random() < 0.1:
        return "detection.json", detections(rng)
    task = rng.choice(list(TASK_NAMES))
    numbers, form = itertools.count(), rng.choice([ours, of_a_log])
    return f"{task}.jsonl", lines(rng, lambda: form(rng, task, next(numbers)), ROWS)


def check(name: str, content: bytes, folder: Path) -> int:
    """Measures are finite, and no model is better or worse than itself."""
    file = folder / name
    file.write_bytes(content)
    answers.forget()
    try:
        predictions = read_predictions(file, file.stem)
    except EvaluationError as error:
        refused(error, file)
        clean(printable(error))
        return max(1, content.count(b"\n"))
    assert read_predictions(file, file.stem) == predictions
    tried = len(predictions.rows) + len(predictions.detections or ())
    tried = max(1, tried + predictions.problems.counts.total())
    sampled = len(content) % 4 == 0
    try:
        for draws in (0, 10) if sampled else (0,):
            summary = summarise(predictions, bootstrap=draws)
            assert summary.rows <= len(predictions.rows)
            for metric, measured in summary.metrics.items():
                known = [v for v in (measured.value, measured.low, measured.high) if v is not None]
                assert all(map(math.isfinite, known)), (metric, measured)
            clean(strict_json(as_json(summary)))
        if sampled:  # which line is of which row is never guessed
            same = compare(predictions, predictions, bootstrap=4)
            assert not same.changed and not same.gained and not same.lost
            assert all(not d.difference for d in same.metrics.values()), same.metrics
    except EvaluationError as error:
        refused(error)
    return tried
