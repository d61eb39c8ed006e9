"""Planned against measured memory, from the log of a run.

    compared(plan, read_run(Path("output/v0")))
    [{"phase": "backward", "planned": 41.2, "allocated": 39.8, "reserved": 43.0, "error": "+4%"}]

With VLRFT_TRACK_MEMORY=1 the callback logs memory/<phase>_allocated_gib and _reserved_gib
(swift_plugin/track_memory.py); ms-swift writes them to logging.jsonl and trainer_state.json as any
other metric.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import finite, json_lines, read_json
from swift_vlrft.memory.estimate import Plan
from swift_vlrft.memory.phases import LOG_PROBABILITIES, NOT_IN_TORCH
from swift_vlrft.memory.settings import GIB

PHASES = {
    "rollout": ("weight sync", "rollout"),
    "log_probabilities": (LOG_PROBABILITIES,),
    "forward": ("forward",),
    "backward": ("backward",),
    "optimizer_step": ("optimizer step",),
}
"""Measured phase -> its planned phases. ms-swift copies the weights within its rollout."""


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
