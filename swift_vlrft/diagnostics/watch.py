"""Checks during training: the first batches are checked, and every sample can be logged.

    WARNING swift_vlrft: vlrft_detection_iou: only 12 % of the first 64 answers can be read ...

One warning for each problem, not one per row. ``VLRFT_LOG_SAMPLES=DIR`` writes score and reason of
every sample as JSON lines, one file per process, so that ranks do not mix lines.
"""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from swift_vlrft.diagnostics.checks import Tally, has_boxes
from swift_vlrft.diagnostics.readings import BoxFormatCheck
from swift_vlrft.diagnostics.reasons import Reason, explain
from swift_vlrft.files.completions import further
from swift_vlrft.parsing.answers import gold_text, text_of
from swift_vlrft.rewards import RewardFunction, Scores

log = logging.getLogger("swift_vlrft")

VARIABLE = "VLRFT_LOG_SAMPLES"
FIRST_CALLS = 10
"""Batches that are checked, per reward and process."""
SETTLED_CALLS = 3
"""Batches after which a low parse rate or a reward std of 0 is worth a warning."""
LEAST_COMPLETIONS = 16
LEAST_GROUPS = 4
"""No warning on fewer completions or groups than these."""
LEAST_OF_GROUP = 4
"""Least completions of a group on one process: two scores are often equal by chance."""


@dataclass
class _Seen:
    """Counts over the first batches of one reward."""

    calls: int = 0
    tally: Tally = field(default_factory=Tally)
    box_format: BoxFormatCheck = field(default_factory=BoxFormatCheck)


_warned: set[str] = set()
"""Problems reported by this process: each kind once, whichever reward finds it first."""


def watch(name: str, function: RewardFunction) -> RewardFunction:
    """``function`` in the checks: same scores, same ``__name__``, same errors."""
    seen = _Seen()

    @wraps(function)
    def watched(completions: Sequence[Any], solution: Any = None, **columns: Any) -> Scores:
        scores = function(completions, solution, **columns)
        folder = os.environ.get(VARIABLE)
        if folder or seen.calls < FIRST_CALLS:
            try:
                seen.calls += 1
                rows = _rows(completions, solution, columns)
                reasons = [_reason(name, row, columns.get("trainer_state")) for row in rows]
                if seen.calls <= FIRST_CALLS:
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
    tally = seen.tally
    tally.add(rows, reasons, LEAST_OF_GROUP)
    for row, reason in zip(rows, reasons, strict=True):
        if reason.score is not None and has_boxes(name, row.get("task")):
            seen.box_format.add_row(name, row)
    if (problem := seen.box_format.problem()) is not None:
        _warn("box format", f"{name}: {problem}")
    if seen.calls < SETTLED_CALLS:
        return
    if tally.unscored and not tally.scored:
        why = ", ".join(f"{count} times {text}" for text, count in tally.unscored.most_common(5))
        _warn(
            f"nothing scored {name}",
            f"{name}: none of the first {tally.unscored.total()} completions got a score: {why}. "
            "If no row of the data sets is of its task, nothing is learned from it: `vlrft data "
            "check PATH` lists the rewards that fit a set.",
        )
    if tally.scored >= LEAST_COMPLETIONS and (problem := tally.unreadable(name)):
        why = "`vlrft score <output_dir>/completions.jsonl` says why."
        _warn("parse rate", f"{problem} {why}")
    if tally.groups >= LEAST_GROUPS and (problem := tally.zero_variance(name)):
        _warn(f"std {name}", problem)


def _reason(name: str, row: dict[str, Any], state: Any) -> Reason:
    return explain(name, row["completion"], row["solution"], trainer_state=state, **further(row))


def _warn(problem: str, message: str) -> None:
    if problem not in _warned and os.environ.get("RANK", "0") == "0":
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
