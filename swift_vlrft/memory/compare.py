"""Planned against measured memory, from the log of a run with VLRFT_TRACK_MEMORY=1.

    compared(plan, read_run(Path("output/v0")))
    [{"phase": "backward", "planned": 41.2, "allocated": 39.8, "reserved": 43.0, "error": "+4%"}]

The callback logs memory/<phase>_allocated_gib and _reserved_gib (swift_plugin/callbacks.py), and
ms-swift writes them to logging.jsonl and trainer_state.json as any other metric.
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
    for file in (f for name in ("logging.jsonl", "trainer_state.json") for f in folder.rglob(name)):
        for name, value in (item for record in _records(file) for item in record.items()):
            number = finite(value)
            if name.startswith("memory/") and name.endswith("_gib") and number is not None:
                key = name.removeprefix("memory/")
                best[key] = max(best.get(key, 0.0), number)
    if not best:
        raise ValueError(
            f"{folder}: no memory/ values in a logging.jsonl or trainer_state.json below it; run "
            'with VLRFT_TRACK_MEMORY=1 and --external_plugins "$(vlrft plugin)"'
        )
    if not any(key.endswith("_allocated_gib") for key in best):
        raise ValueError(
            f"{folder}: this run had no GPU; only resident memory was logged, which a plan for "
            "GPUs cannot be compared with"
        )
    return best


def _records(file: Path) -> list[dict[str, Any]]:
    """The log entries; a line cut short by a killed run is left out."""
    if file.suffix == ".json":
        state = read_json(file)
        rows = state.get("log_history") if isinstance(state, dict) else None
    else:
        rows = [row for _, row in json_lines(file)]
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
        if allocated is not None and planned is not None:
            rows.append(
                {
                    "phase": name,
                    "planned": round(planned, 3),
                    "allocated": round(allocated, 3),
                    "reserved": round(measured.get(f"{name}_reserved_gib", 0.0), 3),
                    "error": f"{planned / allocated - 1:+.0%}" if allocated else "-",
                }
            )
    return rows
