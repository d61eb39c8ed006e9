"""Rows of an evaluation for the report: image, gold and predicted boxes, answer, score, reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.compare import Comparison
from swift_vlrft.evaluation.metrics import reason_of
from swift_vlrft.evaluation.predictions import Prediction, Predictions, Problems
from swift_vlrft.evaluation.queries import QuerySet
from swift_vlrft.evaluation.run import SavedRun
from swift_vlrft.parsing.answers import BoxList, read, read_boxes
from swift_vlrft.report.html import DrawnBox, data_url

LONGEST_SIDE = 480
MOST_BOXES = 200


@dataclass(frozen=True)
class Side:
    """One model's answer to a row: ``name`` is before, after, or answer."""

    name: str
    completion: str
    score: float | None
    reason: str


@dataclass(frozen=True)
class Sample:
    row: Prediction
    sides: list[Side]
    url: str
    boxes: list[DrawnBox]


def samples(
    runs: dict[str, SavedRun], result: Comparison | None, count: int
) -> tuple[list[tuple[str, list[Sample]]], list[str]]:
    """At most ``count`` rows under each heading, and why some have no image; ``runs`` by name."""
    run = next(iter(runs.values()), None)
    if run is None or not count:
        return [], []
    first = run.predictions
    by_id = {name: {row.id: row for row in one.predictions.rows} for name, one in runs.items()}
    picked = _lowest_and_highest(first, count) if result is None else _changed(result, count)
    if not any(picked.values()):
        picked = {"Nothing changed": [row.id for row in first.rows[:count]]}
    of_first = {row.id: row for row in first.rows}
    ids = dict.fromkeys(key for keys in picked.values() for key in keys)
    urls, problems = _images([of_first[key] for key in ids], run)
    groups = []
    for heading, keys in picked.items():
        made = []
        for key in keys:
            rows = {name: rows[key] for name, rows in by_id.items() if key in rows}
            made.append(_sample(first.task, rows, urls.get(key, "")))
        groups.append((heading, made))
    return groups, problems


def _changed(result: Comparison, count: int) -> dict[str, list[str]]:
    return {
        "Largest gain": [flip.id for flip in result.changed if flip.b > flip.a][:count],
        "Largest loss": [flip.id for flip in reversed(result.changed) if flip.b < flip.a][:count],
    }


def _lowest_and_highest(predictions: Predictions, count: int) -> dict[str, list[str]]:
    reasons = [(reason_of(predictions.task, row), row.id) for row in predictions.rows]
    scored = sorted((reason.score, key) for reason, key in reasons if reason.score is not None)
    return {
        "Lowest scores": [key for _, key in scored[:count]],
        "Highest scores": [key for _, key in reversed(scored[-count:])],
    }


def _sample(task: str, rows: dict[str, Prediction], url: str) -> Sample:
    row = next(iter(rows.values()))
    sides, boxes = [], []
    if task in BOX_TASKS:
        boxes = drawn_boxes(row, read_boxes(row.solution), "gold")
    for name, answer in rows.items():
        reason = reason_of(task, answer)
        sides.append(Side(name, answer.completion, reason.score, reason.text))
        if task in BOX_TASKS:
            boxes += drawn_boxes(answer, read(answer.completion).boxes, name)
    return Sample(row, sides, url, boxes)


def drawn_boxes(row: Prediction, found: BoxList | None, kind: str) -> list[DrawnBox]:
    """The valid boxes; none for a row whose box format is not known."""
    if found is None or row.box_range is None:
        return []
    valid = [box for box in found.boxes if box is not None]
    return [DrawnBox(box, row.box_range, kind) for box in valid[:MOST_BOXES]]


def _images(rows: Sequence[Prediction], run: SavedRun) -> tuple[dict[str, str], list[str]]:
    """Data URLs by row id, from a file or the data set's row, and why there is none."""
    images: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    in_set: dict[int, list[str]] = {}
    for row in rows:
        if row.image is not None and Path(row.image).is_file():
            images[row.id] = {"bytes": None, "path": row.image}
        elif row.row is not None:
            in_set.setdefault(row.row, []).append(row.id)
    if in_set and run.manifest is not None and run.gold.annotations is None:
        try:
            for number, image in _images_of(QuerySet(run.manifest.settings), set(in_set)):
                images |= dict.fromkeys(in_set[number], image)
        except (ValueError, OSError) as error:
            problems.append(f"the data set's images: {error}")
    urls = {}
    for key, image in images.items():
        try:
            urls[key] = data_url(image, LONGEST_SIDE)[0]
        except DataError as error:
            problems.append(str(error))
    return urls, problems


def _images_of(queries: QuerySet, numbers: set[int]) -> Iterable[tuple[int, dict[str, Any]]]:
    last = max(numbers)
    for query in queries.read(Problems()):
        if query.number in numbers:
            yield query.number, query.row.image
        if query.number == last:
            return
