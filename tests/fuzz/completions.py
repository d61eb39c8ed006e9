"""completions.jsonl as `vlrft score` reads and prints it."""

import io
import json
import math
import random
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from fuzz import mutate, rewards
from fuzz.target import clean, refused, values

from swift_vlrft.commands.score import print_report
from swift_vlrft.diagnostics.score import score_completions
from swift_vlrft.files.completions import read_completions
from swift_vlrft.files.jsonl import LineError
from swift_vlrft.files.records import as_json, strict_json
from swift_vlrft.parsing import answers
from swift_vlrft.rewards import REWARDS

LINES = 60
SECONDS, SHARE = 20.0, 2


def logged(rng: random.Random, golds: list[str], **columns: list[Any]) -> dict[str, Any]:
    """A step's completions as ms-swift logs them, with one of its values in every column."""
    count = rng.randint(1, 6)
    columns |= {"prompt": ["a", "b", "Detect all dogs."], "solution": golds}
    row = {name: [rng.choice(values) for _ in range(count)] for name, values in columns.items()}
    step, texts = rng.randint(1, 9), [rewards.completion(rng) for _ in range(count)]
    return row | {"step": [str(step)] * count, "completion": texts}


def line(rng: random.Random, name: str) -> dict[str, Any]:
    """A line of ms-swift's log, or one completion, as it should be."""
    task = REWARDS[name].task
    golds = rewards.GOLDS[task.name] if task else [""]
    if rng.random() < 0.5:
        return logged(rng, golds, **{name: [rng.random(), 1, 0, float("nan"), None]})
    row = {"completion": rewards.completion(rng), "solution": rng.choice(golds), name: rng.random()}
    return row | {"task": task.name if task else "detection", "prompt": "Detect all dogs."}


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


def make(rng: random.Random) -> tuple[str, bytes]:
    names = rng.choices(rewards.NAMES, k=rng.choice((1, 1, 2)))
    return "completions.jsonl", lines(rng, lambda: line(rng, rng.choice(names)), LINES)


def check(name: str, content: bytes, folder: Path) -> int:
    """As many completions as the lines hold; the report as JSON and in print."""
    file = folder / name
    file.write_bytes(content)
    records, notes = [], list[str]()
    try:
        for record in read_completions(file, notes):
            records.append(record)
    except LineError as error:
        refused(error, file)
    else:
        known = [values(raw) for raw in content.replace(b"\xef\xbb\xbf", b"").split(b"\n")]
        whole = [row for row in known if isinstance(row, dict)]
        singles = [row for row in whole if not isinstance(row.get("completion"), list)]
        assert len(records) >= len(singles), (len(records), len(singles))
    names = [name for name in REWARDS if any(name in record.row for record in records)]
    tried = max(1, len(records))
    # What one completion cannot be scored for, another is not left out for.
    records = [r for r in records if "completion" in r.row and "solution" in r.row]
    if not names or not records:
        return tried
    answers.forget()
    report = score_completions(records, names, show=3)
    assert report.rows == len(records)
    for name, part in report.rewards.items():
        assert part.scored + part.skipped + part.bad_gold == len(records), (name, as_json(part))
        for share in (part.mean, part.full, part.parse_rate):
            assert share is None or (math.isfinite(share) and 0 <= share <= 1), as_json(part)
    written = strict_json(as_json(report))
    clean(written)
    answers.forget()
    assert strict_json(as_json(score_completions(records, names, show=3))) == written
    if len(content) % 8 == 0:  # printing takes longer than all else
        with redirect_stdout(io.StringIO()) as printed:
            print_report(report)
        clean(printed.getvalue())
    return tried
