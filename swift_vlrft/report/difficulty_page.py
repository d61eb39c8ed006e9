"""Pass rates of a set as one HTML page: their histogram, and rows of both ends with images.

difficulty_page(found, SampledSet(settings), rows)    "<!doctype html>..."
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swift_vlrft.datasets.row import Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.evaluation.difficulty import RowScores
from swift_vlrft.evaluation.sampled import SampledSet
from swift_vlrft.evaluation.set_difficulty import LIKELY, Difficulty
from swift_vlrft.parsing.answers import BoxList, read, read_boxes
from swift_vlrft.report.html import DrawnBox, data_url, render
from swift_vlrft.rewards import TASK_NAMES

LONGEST_SIDE = 480
SHOWN = 8


def difficulty_page(found: Difficulty, queries: SampledSet, rows: Sequence[RowScores]) -> str:
    between = sorted((row for row in rows if 0 < row.pass_rate < 1), key=_from_the_middle)
    at_times = [r for r in found.suspects if r.pass_rate > 0 and (r.suspicion or 0) >= LIKELY]
    groups = {
        "No answer is right: the likeliest wrong gold first": found.never_right.first,
        "Answers nearer to each other than to the gold": at_times,
        "Right about every second time": between,
        "Every answer is right": found.always_right.first,
    }
    shown = {heading: chosen[:SHOWN] for heading, chosen in groups.items() if chosen}
    wanted = {row.number for chosen in shown.values() for row in chosen}
    stored = {}
    for number, row in enumerate(queries.rows()):
        if number in wanted and isinstance(row, Row):
            stored[number] = row
        if number >= max(wanted, default=-1):
            break
    most = max(one.rows for one in found.histogram)
    facts = [
        ("model", found.model),
        ("set", f"{found.dataset}, {found.split}"),
        ("answers per row", f"{found.samples}, at temperature {found.temperature:g}"),
        ("passes", ", ".join(f"{n} of {m:g}" for n, m in found.rewards.items())),
    ]
    return render(
        "difficulty.html",
        title=f"{found.dataset}: pass rates",
        found=found,
        facts=facts,
        bins=[(bin_name(b.low, b.high), b.rows, 100 * b.rows / most) for b in found.histogram],
        groups=[(h, [_shown(stored[r.number], r) for r in of]) for h, of in shown.items()],
    )


def bin_name(low: float, high: float) -> str:
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _from_the_middle(row: RowScores) -> tuple[float, int]:
    return abs(row.pass_rate - 0.5), row.number


def _shown(row: Row, scores: RowScores) -> dict[str, Any]:
    """What the template says of a row."""
    boxes: list[DrawnBox] = []
    if scores.box_range is not None:
        of_points = scores.task in TASK_NAMES and TASK_NAMES[scores.task].has_points
        answer = read(f"<answer>{scores.answer}</answer>") if scores.answer else None
        boxes = _boxes(read_boxes(scores.gold), scores.box_range, "gold")
        given = answer.placed(points=of_points) if answer else None
        boxes += _boxes(given, scores.box_range, "answer point" if of_points else "answer")
    try:
        url = data_url(row.image, LONGEST_SIDE)[0]
    except DataError:
        url = ""
    return {"scores": scores, "problem": row.problem, "url": url, "boxes": boxes}


def _boxes(found: BoxList | None, size: tuple[float, float], kind: str) -> list[DrawnBox]:
    return [DrawnBox(box, size, kind) for box in (found.boxes if found else []) if box is not None]
