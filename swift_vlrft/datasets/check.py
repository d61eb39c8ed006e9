"""Is a set fit to train on? Asked before any model is loaded, without opening an image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swift_vlrft.answers import boxes_or_refusal, gold_text
from swift_vlrft.datasets.parquet import COLUMNS, column_names, light_rows, parquet_files
from swift_vlrft.datasets.source import DataError
from swift_vlrft.rewards import TASK_NAMES

MAX_SHOWN = 5
TEXT_COLUMNS: tuple[str, ...] = ("problem", "solution", "task")


def check_parquet(
    path: Path, *, rename: Mapping[str, str] | None = None, task: str | None = None
) -> tuple[int, str]:
    """Read every prompt and gold solution of a Parquet set; return the number of rows and the
    set's task.

    ``rename`` maps its column names to ours (ms-swift's ``--columns``). A ``task`` column decides
    row by row; otherwise the set is ``task``, or what its solutions look like. Raises DataError
    naming file, row and remedy.
    """
    files = parquet_files(path)
    if not files:
        raise DataError(f"{path} holds no Parquet file; a ViRFT set is a folder of *.parquet files")
    original = {(rename or {}).get(name, name): name for name in column_names(files)}
    missing = [name for name in COLUMNS if name not in original]
    if missing:
        raise DataError(
            f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"it has {', '.join(original)}. "
            f'Rename yours with --columns \'{{"NAME": "{missing[0]}"}}\''
        )
    renamed = {original[name]: name for name in TEXT_COLUMNS if name in original}
    rows = [
        (place, {renamed[k]: v for k, v in row.items()})
        for place, row in light_rows(files, list(renamed))
    ]
    if not rows:
        raise DataError(f"{path} has no rows")
    set_task = task or guess_task(row["solution"] for _, row in rows)
    problems = []
    for place, row in rows:
        problem = row_problem(row, row.get("task") or set_task)
        if problem:
            problems.append(f"{place}: {problem}")
    if problems:
        more = f"\n  and {len(problems) - MAX_SHOWN} more" if len(problems) > MAX_SHOWN else ""
        raise DataError(
            f"{len(problems)} of {len(rows)} rows of {path} cannot be trained on "
            f"(task {set_task}):\n  " + "\n  ".join(problems[:MAX_SHOWN]) + more
        )
    return len(rows), set_task


def row_problem(row: Mapping[str, Any], task: str) -> str | None:
    """What is wrong with a row's text, or None."""
    prompt, solution = row.get("problem"), row.get("solution")
    if not isinstance(prompt, str) or not prompt.strip():
        return f"the problem is {prompt!r}, a prompt is needed"
    if task not in TASK_NAMES:
        return f"unknown task {task!r}; known: {', '.join(TASK_NAMES)}"
    text = gold_text(solution)
    if TASK_NAMES[task].read_gold(text) is None:
        return f"the solution {text[:80]!r} cannot be read as {TASK_NAMES[task].holds} ({task})"
    return None


def guess_task(solutions: Any) -> str:
    """detection where any solution holds a list of boxes, else classification; a ``task`` column
    says it for sure.
    """
    for solution in solutions:
        boxes = boxes_or_refusal(gold_text(solution))
        if boxes is not None and len(boxes):
            return "detection"
    return "classification"
