"""Read what `swift rlhf` left in its folder: settings, metrics of every step, answers.

runs/demo/grpo/{args.json,logging.jsonl,completions.jsonl}

read_run(folder).series["rewards/vlrft_format/mean"]      [(1, 0.25), (2, 0.31), ...]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from swift_vlrft.diagnostics.health import Facts, Finding, Health, distinct, group_of, judge
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.files.completions import read_completions
from swift_vlrft.files.jsonl import finite, json_lines, read_json
from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.report.curves import ends, is_drawable, tenth
from swift_vlrft.rewards import REWARDS, reward_columns

Series = list[tuple[float, float]]
T = TypeVar("T")

MOST_EXPLAINED = 20_000
"""The most completions that are explained; of a longer log they are evenly spread."""

LEAST_STEPS = 5
"""The steps below which a log shows no trend."""
_STEP = re.compile(r"(\d+)/(\d+)")


@dataclass
class Part:
    """A part of a step: its mean seconds, and the most GiB of the card meanwhile if it was read."""

    name: str
    seconds: float
    gib: float | None


@dataclass
class RunLog:
    """The contents of a run's logs.

    ``series`` holds (step, value) by ms-swift's name of the metric; ``settings`` is args.json
    without secrets.
    """

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    steps: int = 0
    planned: int = 0
    """The steps that the run was to take; 0 where its log does not say."""
    elapsed: str = ""
    """The time that the steps took, as ms-swift logged it at the last."""
    parse_rate: dict[str, Series] = field(default_factory=dict)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    completions: int = 0
    findings: list[Finding] = field(default_factory=list)
    """Faults at the end of the run, of its completions if they were logged."""
    notes: list[str] = field(default_factory=list)
    """Parts of the logs that were left out, and why."""


def find_run(folder: Path) -> Path:
    """Return the folder that holds logging.jsonl: itself, or the newest one below it."""
    if not folder.exists():
        raise EvaluationError(f"the run {folder} does not exist (from {Path.cwd()})")
    if (folder / "logging.jsonl").is_file():
        return folder
    logs = [*folder.glob("*/logging.jsonl"), *folder.glob("*/*/logging.jsonl")]
    if not logs:
        raise EvaluationError(
            f"{folder} holds no logging.jsonl; give the --output_dir of a `swift rlhf` run"
        )
    return max(logs, key=lambda path: path.stat().st_mtime).parent


def read_run(folder: Path) -> RunLog:
    folder = find_run(folder)
    run = RunLog(folder)
    with suppress(OSError, ValueError, TypeError):
        args = {str(k): v for k, v in dict(read_json(folder / "args.json")).items()}
        run.settings = {k: v for k, v in args.items() if not is_secret_name(k)}
    by_name: dict[str, dict[float, float]] = {}
    not_drawn: Counter[str] = Counter()
    for number, record in json_lines(folder / "logging.jsonl"):
        if not isinstance(record, dict):  # a line that a kill has cut
            run.notes.append(f"logging.jsonl, line {number} cannot be read, left out")
            continue
        progress = _STEP.match(str(record.get("global_step/max_steps", "")))
        step = finite(progress[1] if progress else record.get("step"))
        if step is None:
            continue
        run.steps = max(run.steps, int(step))
        run.planned = int(finite(progress[2]) or 0) if progress else 0
        run.elapsed = str(record.get("elapsed_time") or run.elapsed)
        for name, value in record.items():
            if type(value) not in (int, float) or name == "step":
                continue
            # A run that went on from a checkpoint repeats steps; what it did then counts.
            if is_drawable(value):
                by_name.setdefault(name, {})[step] = float(value)
            else:
                not_drawn[name] += 1
    if not run.steps:
        run.notes.append("logging.jsonl holds no step")
    run.series = {name: sorted(values.items()) for name, values in by_name.items()}
    run.notes += [
        f"{name}: {count} values are NaN, infinite or too large, not drawn"
        for name, count in sorted(not_drawn.items())
    ]
    if (folder / "completions.jsonl").is_file():
        _read_completions(folder / "completions.jsonl", run)
    run.findings = run.findings or distinct(map(judge, of_series(run.series)))
    return run


def _read_completions(path: Path, run: RunLog) -> None:
    """Read parse rates by step, and the reasons why completions lost points."""
    run.completions = sum(1 for _ in read_completions(path, run.notes))
    every = max(1, -(-run.completions // MOST_EXPLAINED))
    was_read: dict[str, dict[float, list[bool]]] = {}
    healths: dict[str, Health] = {}
    for completion in islice(read_completions(path, []), every - 1, None, every):
        row = completion.row
        stated = [n for n in REWARDS if n in row]
        names = [n for n in stated if REWARDS[n].task is not None] or stated
        solution = row.get("solution")
        for name in names:
            logged = completion.logged(name)
            unscored = solution is None and "solution" in REWARDS[name].needs
            if unscored or logged is None:
                continue  # of another reward's task
            reason = explain(name, row.get("completion"), solution, **reward_columns(row))
            if reason.score is None:
                continue
            by_step = was_read.setdefault(name, {}).setdefault(completion.step, [])
            by_step.append(reason.was_read)
            # The log has the solution alone: an answer that its aliases accept lost nothing.
            code = "ok" if logged == 1.0 else reason.code
            run.reasons.setdefault(name, Counter())[code] += 1
            health = healths.setdefault(name, Health(name, sampled=True))
            health.add(row, replace(reason, score=logged), group_of(row))
    run.findings = distinct(health.finding() for health in healths.values())
    run.parse_rate = {
        name: [(step, sum(read) / len(read)) for step, read in sorted(steps.items())]
        for name, steps in was_read.items()
    }


def parts_of(series: Mapping[str, Series]) -> list[Part]:
    """Return the parts of a step, the longest first; VLRFT_TRACK_MEMORY=1 logs them."""
    parts = []
    for name, points in series.items():
        if found := re.fullmatch(r"memory/(\w+)_seconds", name):
            gib = [value for _, value in series.get(f"memory/{found[1]}_card_gib", ())]
            seconds = fmean(value for _, value in points)
            parts.append(Part(found[1], seconds, max(gib, default=None)))
    return sorted((part for part in parts if part.seconds), key=lambda part: -part.seconds)


def reward_means(series: Mapping[str, T]) -> dict[str, T]:
    """Return the means of every reward by its name."""
    names = [n for n in series if n.startswith("rewards/") and n.endswith("/mean")]
    return {n[len("rewards/") : -len("/mean")]: series[n] for n in names}


def of_series(series: Mapping[str, Series]) -> list[Facts]:
    """Return the facts of a run's metrics, which are named as in ms-swift's log."""
    long = {n: [v for _, v in points] for n, points in series.items() if len(points) >= LEAST_STEPS}
    of_rewards: list[Facts] = []
    for reward, values in reward_means(long).items():
        last = values[-tenth(len(values)) :]
        flat = 1 if min(values) >= 1 else None if any(last) else 0
        of = f"the last {len(last)} steps"
        of_rewards.append(Facts(reward, of, score=ends(values), flat=flat))
    scores = [facts.score for facts in of_rewards if facts.score and not facts.of_format]
    of_run = Facts(
        "the sum of the rewards",
        "the last steps",
        score=max(scores, key=lambda pair: pair[1] - pair[0], default=None),
        zero_variance=ends(long.get("frac_reward_zero_std", [0.0]))[1],
    )
    return [*of_rewards, of_run]
