"""Planned against measured memory and seconds, from the log of a run.

    compared(plan, read_run(Path("output/v0")))
    [{"phase": "backward", "planned": 41.2, "allocated": 39.8, "reserved": 43.0, "error": "+4%"}]
    compared_seconds(step, seconds_in(read_log(Path("output/v0"))))
    [{"phase": "step", "planned_seconds": 7.1, "measured_seconds": 10.3, "error": "-31%"}]

With VLRFT_TRACK_MEMORY=1 the callback logs memory/<phase>_allocated_gib, _reserved_gib and
_seconds (swift_plugin/callbacks.py); ms-swift writes them to logging.jsonl and trainer_state.json
as any other metric, beside its own step_time and train_speed(s/it) of every run.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import finite, json_lines, read_json
from swift_vlrft.memory.estimate import Plan
from swift_vlrft.memory.generation import Answers
from swift_vlrft.memory.phases import LOG_PROBABILITIES, NOT_IN_TORCH
from swift_vlrft.memory.settings import GIB
from swift_vlrft.memory.step_time import LOGPS, PASSES, ROLLOUT, STEP, StepTime

PHASES = {
    "rollout": ("weight sync", "rollout"),
    "log_probabilities": (LOG_PROBABILITIES,),
    "forward": ("forward",),
    "backward": ("backward",),
    "optimizer_step": ("optimizer step",),
}
"""Measured phase -> its planned phases. ms-swift copies the weights within its rollout."""


SECONDS = {
    "rollout": (("rollout",), ROLLOUT),
    "log-probabilities": (("log_probabilities",), (LOGPS,)),
    "forward, backward, step": (("forward", "backward", "optimizer_step"), (PASSES, STEP)),
}
"""Part of a step -> the callback's phases and the estimate's."""

GPU_MEMORY = "memory(GiB)"
"""ms-swift logs it where there is a GPU."""

STEP_TIME, TRAIN_SPEED = WHOLE = ("step_time", "train_speed(s/it)")
"""Seconds of a step in ms-swift's log: its GRPO trainer's own, and the mean since the start with
evaluation and saving, which counts where there is no other."""


def read_run(folder: Path) -> dict[str, float]:
    """The largest value of each memory/ metric of a run; ValueError if there is none."""
    best: dict[str, float] = {}
    for file in (*folder.rglob("logging.jsonl"), *folder.rglob("trainer_state.json")):
        for name, value in (item for record in _records(file) for item in record.items()):
            number, key = finite(value), name.removeprefix("memory/")
            if key != name and name.endswith("_gib") and number is not None:
                best[key] = max(best.get(key, 0.0), number)
    if not best:
        raise ValueError(
            f"{folder}: no memory/ values in a logging.jsonl or trainer_state.json below it; run "
            'with VLRFT_TRACK_MEMORY=1 and --external_plugins "$(vlrft plugin)"'
        )
    if not any(key.endswith("_allocated_gib") for key in best):
        raise ValueError(
            f"{folder}: this run had no GPU; a plan cannot be compared with its memory"
        )
    return best


def _records(file: Path) -> list[dict[str, Any]]:
    """The log entries; a line cut short by a killed run is left out."""
    rows: Any = [row for _, row in json_lines(file)] if file.suffix == ".jsonl" else read_json(file)
    if isinstance(rows, dict):
        rows = rows.get("log_history")
    return [row for row in rows or [] if isinstance(row, dict)]


def compared(plan: Plan, measured: dict[str, float]) -> list[dict[str, str | float]]:
    """One row per measured phase, of torch's allocations: without the engine and the context."""
    totals = {
        phase.name: sum(v for name, v in phase.parts.items() if name not in NOT_IN_TORCH) / GIB
        for phase in plan.phases
    }
    rows: list[dict[str, str | float]] = []
    for name, phases in PHASES.items():
        allocated = measured.get(f"{name}_allocated_gib")
        planned = max((totals[phase] for phase in phases if phase in totals), default=None)
        if allocated is None or planned is None:
            continue
        error = f"{planned / allocated - 1:+.0%}" if allocated else "-"
        reserved = measured.get(f"{name}_reserved_gib", 0.0)
        sizes = {"planned": planned, "allocated": allocated, "reserved": reserved}
        rounded = {key: round(size, 3) for key, size in sizes.items()}
        rows.append({"phase": name, **rounded, "error": error})
    return rows


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The entries of the latest logging.jsonl below a folder that has a step's seconds."""
    files = sorted(folder.rglob("logging.jsonl"), key=lambda file: file.stat().st_mtime)
    for file in reversed(files):
        log = _records(file)
        if any(_numbers(log, name) for name in WHOLE):
            return log
    return []


def only_seconds(log: list[dict[str, Any]]) -> bool:
    """Whether a log is that of a run on GPUs without VLRFT_TRACK_MEMORY."""
    tracked = any(key.startswith("memory/") for entry in log for key in entry)
    return not tracked and bool(_numbers(log, GPU_MEMORY))


def seconds_in(log: list[dict[str, Any]]) -> dict[str, float]:
    """Mean seconds of an optimizer step: "step" and, if the callback ran, its parts."""
    found = {"step": _mean(log, STEP_TIME)}
    if found["step"] is None and (speeds := _numbers(log, TRAIN_SPEED)):
        found["step"] = speeds[-1]
    for row, (names, _) in SECONDS.items():
        parts = [_mean(log, f"memory/{name}_seconds") for name in names]
        found[row] = sum(part for part in parts if part is not None)
    return {row: seconds for row, seconds in found.items() if seconds}


def answers_in(log: list[dict[str, Any]]) -> Answers | None:
    """The lengths of a run's completions, as ms-swift logs them."""
    mean, longest = (_mean(log, f"completions/{which}_length") for which in ("mean", "max"))
    return Answers(mean, max(mean, longest or mean)) if mean else None


def compared_seconds(step: StepTime, measured: dict[str, float]) -> list[dict[str, str | float]]:
    """One row per measured part of a step, if its seconds are estimated."""
    if step.speed is None:
        return []
    phases = {phase.name: phase.seconds or 0.0 for phase in step.phases}
    parts = {"step": tuple(phases), **{row: names for row, (_, names) in SECONDS.items()}}
    rows: list[dict[str, str | float]] = []
    for row, names in parts.items():
        planned = sum(phases.get(name, 0.0) for name in names)
        if (seconds := measured.get(row)) and planned:
            sizes = {"planned_seconds": round(planned, 2), "measured_seconds": round(seconds, 2)}
            rows.append({"phase": row, **sizes, "error": f"{planned / seconds - 1:+.0%}"})
    return rows


def _mean(log: list[dict[str, Any]], key: str) -> float | None:
    """Without the first of several: it holds what is done once."""
    values = _numbers(log, key)
    return statistics.fmean(values[1:] or values) if values else None


def _numbers(log: list[dict[str, Any]], key: str) -> list[float]:
    numbers = [finite(entry.get(key)) for entry in log]
    return [number for number in numbers if number is not None and number > 0]
