"""What `swift rlhf` left in its folder: settings, the metrics of every step, what was answered.

runs/demo/grpo/{args.json,logging.jsonl,completions.jsonl}

read_run(folder).series["rewards/vlrft_format/mean"]      [(1, 0.25), (2, 0.31), ...]
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.reasons import explain
from swift_vlrft.rewards import REWARDS, TASKS

Series = list[tuple[float, float]]

MOST_EXPLAINED = 20_000
"""Completions that are read again for parse rate and reasons; of a longer log, evenly spread."""

SECRET = re.compile(r"token|secret|passw|api_key|apikey|credential", re.IGNORECASE)
_STEP = re.compile(r"(\d+)/(\d+)")


@dataclass
class RunLog:
    """``series`` by the name of the metric as ms-swift logs it: (step, value)."""

    folder: Path
    settings: dict[str, Any]
    series: dict[str, Series]
    steps: int
    parse_rate: dict[str, Series] = field(default_factory=dict)
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    completions: int = 0
    unreadable_lines: int = 0


def find_run(folder: Path) -> Path:
    """The folder that holds logging.jsonl: itself, or the newest one below it."""
    if not folder.exists():
        raise EvaluationError(f"the run {folder} does not exist (from {Path.cwd()})")
    found = [folder / "logging.jsonl"] if (folder / "logging.jsonl").is_file() else []
    found = found or [*folder.glob("*/logging.jsonl"), *folder.glob("*/*/logging.jsonl")]
    if not found:
        raise EvaluationError(
            f"{folder} holds no logging.jsonl; give the --output_dir of a `swift rlhf` run"
        )
    return max(found, key=lambda path: path.stat().st_mtime).parent


def read_run(folder: Path) -> RunLog:
    folder = find_run(folder)
    run = RunLog(folder, _settings(folder), {}, 0)
    by_name: dict[str, dict[float, float]] = {}
    for record in _lines(folder / "logging.jsonl", run):
        step = _step_of(record)
        if step is None:
            continue
        run.steps = max(run.steps, int(step))
        for name, value in record.items():
            if type(value) in (int, float) and math.isfinite(value) and name != "step":
                # A run that went on from a checkpoint repeats steps; what it did then counts.
                by_name.setdefault(name, {})[step] = float(value)
    run.series = {name: sorted(values.items()) for name, values in by_name.items()}
    if (folder / "completions.jsonl").is_file():
        _read_completions(folder / "completions.jsonl", run)
    return run


def _settings(folder: Path) -> dict[str, Any]:
    try:
        settings = json.loads((folder / "args.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(settings, dict):
        return {}
    return {str(k): v for k, v in settings.items() if not SECRET.search(str(k))}


def _lines(path: Path, run: RunLog) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                run.unreadable_lines += bool(line.strip())
                continue
            if isinstance(record, dict):
                yield record


def _step_of(record: dict[str, Any]) -> float | None:
    found = _STEP.match(str(record.get("global_step/max_steps", "")))
    if found:
        return float(found[1])
    step = record.get("step")
    usable = isinstance(step, (int, float)) and math.isfinite(step)
    return float(step) if usable else None  # type: ignore[arg-type]


def _read_completions(path: Path, run: RunLog) -> None:
    """Parse rate of every step and the reasons for lost points, of the task's first reward."""
    total = sum(len(c) for r in _lines(path, run) if isinstance(c := r.get("completion"), list))
    every = max(1, -(-total // MOST_EXPLAINED))
    run.completions = total
    counts: dict[str, dict[float, list[int]]] = {}
    number = 0
    for record in _lines(path, run):
        completions = record.get("completion")
        if not isinstance(completions, list):
            continue
        names = [n for n in REWARDS if isinstance(record.get(n), list) and TASKS[n] is not None]
        if not names and isinstance(record.get("vlrft_format"), list):
            names = ["vlrft_format"]
        for n, completion in enumerate(completions):
            number += 1
            if number % every:
                continue
            step = _number(_at(record.get("step"), n))
            for name in names:
                solution = _at(record.get("solution"), n)
                if _at(record.get(name), n) is None or (
                    solution is None and TASKS[name] is not None
                ):
                    continue
                row = {
                    key: value
                    for key in ("task", "aliases")
                    if (value := _at(record.get(key), n)) is not None
                }
                reason = explain(name, completion, solution, **row)
                if reason.score is None:
                    continue
                read = counts.setdefault(name, {}).setdefault(step, [0, 0])
                read[0] += reason.was_read
                read[1] += 1
                of = run.reasons.setdefault(name, {})
                of[reason.code] = of.get(reason.code, 0) + 1
    run.parse_rate = {
        name: [(step, read / of) for step, (read, of) in sorted(by_step.items())]
        for name, by_step in counts.items()
    }


def _at(values: Any, n: int) -> Any:
    return values[n] if isinstance(values, list) and n < len(values) else None


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
