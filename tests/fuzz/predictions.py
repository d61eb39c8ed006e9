"""Predictions of every format, as `vlrft eval --predictions` and `vlrft compare` read them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from fuzz import mutate, rewards
from fuzz.completions import lines
from fuzz.target import Target, clean, refused

from swift_vlrft.commands.output import printable
from swift_vlrft.evaluation.compare import compare
from swift_vlrft.evaluation.predictions import EVALUATED, EvaluationError, read_predictions
from swift_vlrft.evaluation.summary import summarise
from swift_vlrft.files.records import as_json, strict_json
from swift_vlrft.parsing import answers

ROWS = 60


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


def of_swift_infer(rng: random.Random, task: str, n: int) -> dict[str, Any]:
    return {
        "response": rewards.completion(rng),
        "labels": rng.choice(rewards.GOLDS[task]),
        "messages": [{"role": "user", "content": "<image>Where is the dog?"}],
        "images": [{"bytes": None, "path": f"images/{n}.png"}],
        "task": task,
    }


def of_a_log(rng: random.Random, task: str, n: int) -> dict[str, Any]:
    count = rng.randint(1, 4)
    return {
        "step": [str(n)] * count,
        "completion": [rewards.completion(rng) for _ in range(count)],
        "solution": rng.choices(rewards.GOLDS[task], k=count),
        "prompt": ["a"] * count,
        "task": [task] * count,
    }


def detections(rng: random.Random) -> bytes:
    rows = [
        {"image_id": n, "category_id": n % 3, "bbox": [n, n, 10.5, 20], "score": rng.random()}
        for n in range(rng.randint(0, ROWS))
    ]
    content = json.dumps([mutate.value(rng, row) if rng.random() < 0.5 else row for row in rows])
    return mutate.raw(rng, content.encode(), 2) if rng.random() < 0.2 else content.encode()


class Predictions(Target):
    name = "predictions"
    share = 2
    one_input = "one prediction of a file of up to 60, read, measured and compared with itself"

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bytes]:
        if rng.random() < 0.1:
            return "detection.json", detections(rng)
        task = rng.choice(list(EVALUATED))
        form = rng.choice([ours, of_swift_infer, of_a_log])
        numbers = iter(range(10_000))
        return f"{task}.jsonl", lines(rng, lambda: form(rng, task, next(numbers)), ROWS)

    def check(self, case: tuple[str, bytes], folder: Path) -> int:
        """Measures are finite, and no model is better or worse than itself."""
        file = folder / case[0]
        file.write_bytes(case[1])
        answers.forget()
        try:
            found = read_predictions(file, file.stem)
        except EvaluationError as error:
            refused(error, file)
            clean(printable(error))
            return max(1, case[1].count(b"\n"))
        assert read_predictions(file, file.stem) == found
        tried = max(
            1, len(found.rows) + len(found.detections or ()) + found.problems.counts.total()
        )
        for draws in (0, 10) if len(case[1]) % 4 == 0 else (0,):
            try:
                summary = summarise(found, bootstrap=draws)
            except EvaluationError as error:
                refused(error)
                return tried
            assert summary.rows <= len(found.rows)
            for name, of in summary.metrics.items():
                known = [v for v in (of.value, of.low, of.high) if v is not None]
                assert all(map(math.isfinite, known)), (name, of)
        clean(strict_json(as_json(summary)))
        if len(case[1]) % 4 == 0:
            try:
                same = compare(found, found, bootstrap=4)
            except EvaluationError as error:  # which line is of which row is never guessed
                refused(error)
                return tried
            assert not same.changed and not same.gained and not same.lost
            assert all(not d.difference for d in same.metrics.values()), same.metrics
        return tried


TARGET = Predictions()
