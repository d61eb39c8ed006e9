"""Checks during training: what is wrong with the run is said at once, every sample can be logged.

    WARNING swift_vlrft: the model has stopped detecting: 94% of the last 256 answers are empty ...

Each finding of health.py is said when it is first seen, and again when the run is four times as
long. ``VLRFT_LOG_SAMPLES=DIR`` writes score and reason of every sample as JSON lines, one file per
process, so that ranks do not mix lines.
"""

import json
import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from swift_vlrft.diagnostics.health import LEAST_SAMPLED, Finding, Health, group_of, judge
from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.files.completions import further
from swift_vlrft.parsing.answers import gold_text, text_of
from swift_vlrft.rewards import RewardFunction, Scores

log = logging.getLogger("swift_vlrft")

VARIABLE = "VLRFT_LOG_SAMPLES"
FIRST_CALLS = 10
"""Batches, per reward and process, after which nothing is said of boxes that earn points, nor of
rows that are not scored."""
SETTLED_CALLS = 3
"""Batches after which it is worth a warning that nothing was scored."""
AGAIN = 4
"""A finding that still holds is said again at so many times the completions: at the end of a long
log it stands near the end, too."""


@dataclass
class _Seen:
    """What a reward has seen; ``unscored`` by the reason."""

    health: Health
    calls: int = 0
    unscored: Counter[str] = field(default_factory=Counter)


_found: dict[tuple[str, str], int] = {}
"""By code and subject of a finding: how many completions had been seen when it was said last."""
_warned: set[str] = set()
"""Other problems, each said once, whichever reward finds it first."""


def watch(name: str, function: RewardFunction) -> RewardFunction:
    """``function`` in the checks: same scores, same ``__name__``, same errors."""
    seen = _Seen(Health(name, sampled=True))

    @wraps(function)
    def watched(completions: Sequence[Any], solution: Any = None, **columns: Any) -> Scores:
        scores = function(completions, solution, **columns)
        folder = os.environ.get(VARIABLE)
        if folder or _speaks():
            try:
                seen.calls += 1
                rows = _rows(completions, solution, columns)
                reasons = [_reason(name, row, columns.get("trainer_state")) for row in rows]
                if _speaks():
                    _look(name, seen, rows, reasons)
                if folder:
                    _write(Path(folder), name, rows, reasons, columns.get("trainer_state"))
            except Exception as error:
                _warn("check", f"{name}: a check failed: {error!r}. Scores are not affected.")
        return scores

    return watched


def _rows(
    completions: Sequence[Any], solution: Any, columns: dict[str, Any]
) -> list[dict[str, Any]]:
    """One dict per completion, with the columns that have a value for each."""
    solutions = [None] * len(completions) if solution is None else solution
    kept = {"completion": completions, "solution": solutions}
    for key, values in columns.items():
        if isinstance(values, (list, tuple)) and len(values) == len(completions):
            kept[key] = values
    return [{key: values[n] for key, values in kept.items()} for n in range(len(completions))]


def _look(name: str, seen: _Seen, rows: list[dict[str, Any]], reasons: list[Reason]) -> None:
    health, call = seen.health, seen.calls
    for row, reason in zip(rows, reasons, strict=True):
        group = group_of(row)
        health.add(row, reason, group and (*group, call))
        if reason.score is None:
            seen.unscored[reason.text] += 1
    found = judge(health.facts())
    # Causes take time to find, so they are asked for where something is to be said.
    if _is_due(found, health) if found is not None else call <= FIRST_CALLS:
        explained = health.explained(found)
        if explained is not None and _is_due(explained, health, again=found is not None):
            log.warning("%s", explained)
        for said in filter(None, (found, explained)):
            _found[said.code, said.subject] = max(health.seen, LEAST_SAMPLED)
    if call > FIRST_CALLS:
        return
    if call >= SETTLED_CALLS and seen.unscored and not health.seen:
        why = ", ".join(f"{count} times {text}" for text, count in seen.unscored.most_common(5))
        _warn(
            f"nothing scored {name}",
            f"{name}: none of the first {seen.unscored.total()} completions got a score: {why}. "
            "If no row of the data sets is of its task, nothing is learned from it: `vlrft data "
            "check PATH` lists the rewards that fit a set.",
        )


def _is_due(found: Finding, health: Health, *, again: bool = True) -> bool:
    last = _found.get((found.code, found.subject))
    return last is None or (again and health.seen >= AGAIN * last)


def _reason(name: str, row: dict[str, Any], state: Any) -> Reason:
    return explain(name, row["completion"], row["solution"], trainer_state=state, **further(row))


def _speaks() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _warn(problem: str, message: str) -> None:
    if problem not in _warned and _speaks():
        _warned.add(problem)
        log.warning(message)


def _write(
    folder: Path, name: str, rows: list[dict[str, Any]], reasons: list[Reason], state: Any
) -> None:
    """Append one line per sample, with one write per batch, to this process's file."""
    lines = []
    for row, reason in zip(rows, reasons, strict=True):
        if reason.score is None:
            continue
        record = {
            "step": getattr(state, "global_step", None),
            "reward": name,
            "score": reason.score,
            "code": reason.code,
            "reason": reason.text,
            "prompt_id": row.get("prompt_id"),
            "completion": text_of(row["completion"]),
            "solution": gold_text(row["solution"]),
        }
        lines.append(json.dumps(record) + "\n")  # ASCII: a lone surrogate cannot break the file
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"samples-rank{os.environ.get('RANK', '0')}-{os.getpid()}.jsonl"
    with path.open("a", encoding="ascii") as file:
        file.write("".join(lines))
