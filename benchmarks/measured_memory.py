"""Planned against measured memory of a GPU, from the log of a run.

    compared(plan, read_run(Path("output/v0")))
    [{"phase": "backward", "planned": 41.2, "card": 39.8, "error": "+4%"}]

With VLRFT_TRACK_MEMORY=1 the callback logs memory/<phase>_card_gib (swift_plugin/track_memory.py);
ms-swift writes it to logging.jsonl as any other metric.
"""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.files.jsonl import finite, json_lines
from swift_vlrft.memory.estimate import Plan
from swift_vlrft.memory.phases import LOG_PROBABILITIES
from swift_vlrft.memory.settings import GIB

PHASES = {
    "weight_sync": ("weight sync",),
    "sleep_and_wake": ("weight sync", "rollout"),
    "generation": ("rollout",),
    "log_probabilities": (LOG_PROBABILITIES,),
    "forward": ("forward",),
    "backward": ("backward",),
    "optimizer_step": ("optimizer step",),
}
"""Measured phase -> its planned phases."""


def read_run(folder: Path) -> dict[str, float]:
    """Map each memory/ metric of a run to its largest value; ValueError if there is none."""
    best: dict[str, float] = {}
    for file in folder.rglob("logging.jsonl"):
        for _, record in json_lines(file):
            for name, value in record.items() if isinstance(record, dict) else ():
                number, key = finite(value), name.removeprefix("memory/")
                if key != name and number is not None:
                    best[key] = max(best.get(key, 0.0), number)
    if not best:
        raise ValueError(
            f"{folder}: no memory/ values in a logging.jsonl below it; run with "
            'VLRFT_TRACK_MEMORY=1 and --external_plugins "$(vlrft plugin)"'
        )
    return best


def compared(plan: Plan, measured: dict[str, float]) -> list[dict[str, str | float]]:
    """Return a row per measured phase, of all that is on the card; none for a run without a GPU."""
    totals = {phase.name: phase.total / GIB for phase in plan.phases}
    rows: list[dict[str, str | float]] = []
    for name, phases in PHASES.items():
        card = measured.get(f"{name}_card_gib")
        planned = max((totals[phase] for phase in phases if phase in totals), default=None)
        if card and planned is not None:
            error = f"{planned / card - 1:+.0%}"
            sizes = {"planned": round(planned, 2), "card": round(card, 2)}
            rows.append({"phase": name, **sizes, "error": error})
    return rows
