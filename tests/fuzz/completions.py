"""completions.jsonl as `vlrft score` reads and prints it."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from fuzz import mutate, rewards
from fuzz.target import Target, clean, refused, values

from swift_vlrft.commands.score import print_report
from swift_vlrft.diagnostics.score import score_completions
from swift_vlrft.files.completions import read_completions
from swift_vlrft.files.jsonl import LineError
from swift_vlrft.files.records import as_json, strict_json
from swift_vlrft.parsing import answers
from swift_vlrft.rewards import REWARDS

LINES = 60


def line(rng: random.Random, name: str) -> dict[str, Any]:
    """A line of ms-swift's log, or one completion, as it should be."""
    task = REWARDS[name].task
    golds = rewards.GOLDS[task.name] if task else [""]
    if rng.random() < 0.5:
        return {
            "completion": rewards.completion(rng),
            "solution": rng.choice(golds),
            "task": task.name if task else "detection",
            "prompt": "Detect all dogs.",
            name: rng.random(),
        }
    count = rng.randint(1, 6)
    return {
        "step": [str(rng.randint(1, 9))] * count,
        "prompt": [rng.choice(["a", "b", "Detect all dogs."]) for _ in range(count)],
        "completion": [rewards.completion(rng) for _ in range(count)],
        "solution": [rng.choice(golds) for _ in range(count)],
        name: [rng.choice([rng.random(), 1, 0, float("nan"), None]) for _ in range(count)],
    }


def json_line(rng: random.Random, row: Any) -> bytes:
    return json.dumps(row, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")


def lines(rng: random.Random, make: Callable[[], Any], count: int) -> bytes:
    """Mostly changed values, and in one file of four also changed bytes."""
    rows = [make() for _ in range(rng.randint(1, count))]
    rows = [mutate.value(rng, row) if rng.random() < 0.6 else row for row in rows]
    written = [json_line(rng, row) for row in rows]
    if rng.random() < 0.25:
        at = rng.choice([rng.randrange(len(written)), -1])
        written[at] = mutate.raw(rng, written[at], 2)
    ends = rng.choice([b"\n", b"\n", b"\r\n", b"\n\n", b"\n\xef\xbb\xbf"])
    return rng.choice([b"", b"", b"\xef\xbb\xbf"]) + ends.join(written) + rng.choice([b"", b"\n"])


class Completions(Target):
    name = "completions"
    share = 2
    one_input = "one completion of a file of up to 60 lines, read, scored, explained and printed"

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bytes]:
        names = rng.choices(rewards.NAMES, k=rng.choice((1, 1, 2)))
        return "completions.jsonl", lines(rng, lambda: line(rng, rng.choice(names)), LINES)

    def check(self, case: tuple[str, bytes], folder: Path) -> int:
        """As many completions as the lines hold; the report as JSON and in print."""
        file = folder / case[0]
        file.write_bytes(case[1])
        found, notes = [], list[str]()
        try:
            for one in read_completions(file, notes):
                found.append(one)
        except LineError as error:
            refused(error, file)
        else:
            known = [values(raw) for raw in case[1].replace(b"\xef\xbb\xbf", b"").split(b"\n")]
            whole = [row for row in known if isinstance(row, dict)]
            singles = [row for row in whole if not isinstance(row.get("completion"), list)]
            assert len(found) >= len(singles), (len(found), len(singles))
        names = [name for name in REWARDS if any(name in one.row for one in found)]
        tried = max(1, len(found))
        # What one completion cannot be scored for, another is not left out for.
        found = [one for one in found if "completion" in one.row and "solution" in one.row]
        if not names or not found:
            return tried
        answers.forget()
        report = score_completions(found, names, show=3)
        assert report.rows == len(found)
        for name, of in report.rewards.items():
            assert of.scored + of.skipped + of.bad_gold == len(found), (name, as_json(of))
            for share in (of.mean, of.full, of.parse_rate):
                assert share is None or (math.isfinite(share) and 0 <= share <= 1), as_json(of)
        written = strict_json(as_json(report))
        clean(written)
        answers.forget()
        assert strict_json(as_json(score_completions(found, names, show=3))) == written
        if len(case[1]) % 8:  # printing takes longer than all else
            return tried
        with redirect_stdout(io.StringIO()) as printed:
            print_report(report)
        clean(printed.getvalue())
        return tried


TARGET = Completions()
