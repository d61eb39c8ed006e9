"""Rows of an evaluation for the report: image, gold and predicted boxes, answer, score, reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.compare import Comparison
from swift_vlrft.evaluation.metrics import reason_of
from swift_vlrft.evaluation.predictions import Prediction, Predictions, Problems
from swift_vlrft.evaluation.queries import QuerySet
from swift_vlrft.evaluation.run import SavedRun
from swift_vlrft.parsing.answers import BoxList, read, read_boxes
from swift_vlrft.report.html import DrawnBox, data_url
from swift_vlrft.rewards import TASK_NAMES
from swift_vlrft.rewards.zoom import one_box, turns_of

LONGEST_SIDE = 480
MOST_BOXES = 200
IN_THOUSANDTHS = (1000.0, 1000.0)
"""Of crops, and of what is to be looked at."""


class Side(NamedTuple):
    """One model's answer to a row: ``name`` is before, after, or answer."""

    name: str
    completion: str
    score: float | None
    reason: str


class Sample(NamedTuple):
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
    picked = _picked(first, result, count)
    if not any(picked.values()):
        picked = {"Nothing changed": [row.id for row in first.rows[:count]]}
    of_first = {row.id: row for row in first.rows}
    ids = dict.fromkeys(key for keys in picked.values() for key in keys)
    urls, problems = _images([of_first[key] for key in ids], run)

    def shown(key: str) -> Sample:
        rows = {name: rows[key] for name, rows in by_id.items() if key in rows}
        return _sample(first.task, rows, urls.get(key, ""))

    return [(heading, list(map(shown, keys))) for heading, keys in picked.items()], problems


def _picked(
    predictions: Predictions, result: Comparison | None, count: int
) -> dict[str, list[str]]:
    """Ids of rows by heading."""
    if result is not None:
        gains = [flip.id for flip in result.changed if flip.b > flip.a]
        losses = [flip.id for flip in reversed(result.changed) if flip.b < flip.a]
        return {"Largest gain": gains[:count], "Largest loss": losses[:count]}
    reasons = [(reason_of(predictions.task, row), row.id) for row in predictions.rows]
    scored = sorted((reason.score, key) for reason, key in reasons if reason.score is not None)
    lowest, highest = scored[:count], scored[-count:][::-1]
    return {
        "Lowest scores": [key for _, key in lowest],
        "Highest scores": [key for _, key in highest],
    }


def _sample(task: str, rows: dict[str, Prediction], url: str) -> Sample:
    row = next(iter(rows.values()))
    sides, boxes = [], []
    if task in BOX_TASKS:
        boxes = drawn_boxes(row, read_boxes(row.solution), "gold")
    if (target := one_box(row.zoom_box)) is not None:
        boxes.append(DrawnBox(target, IN_THOUSANDTHS, "gold"))
    for name, answer in rows.items():
        reason, turns = reason_of(task, answer), turns_of(answer.turns)
        said = [text for turn in turns for text in (turn["text"], turn.get("said")) if text]
        sides.append(Side(name, "\n".join([*said, answer.completion]), reason.score, reason.text))
        crops = [crop for turn in turns if (crop := one_box(turn.get("crop"))) is not None]
        boxes += [DrawnBox(crop, IN_THOUSANDTHS, name) for crop in crops]
        if task in BOX_TASKS:
            points = TASK_NAMES[task].has_points
            given = read(answer.completion).placed(points=points)
            boxes += drawn_boxes(answer, given, f"{name} point" if points else name)
    return Sample(row, sides, url, boxes)


def drawn_boxes(row: Prediction, found: BoxList | None, kind: str) -> list[DrawnBox]:
    """The valid boxes; none for a row whose box format is not known."""
    return [] if row.box_range is None else boxes_drawn(found, row.box_range, kind)


def boxes_drawn(found: BoxList | None, size: tuple[float, float], kind: str) -> list[DrawnBox]:
    """The first valid boxes, of an image whose numbers run to ``size``."""
    valid = [box for box in found.boxes if box is not None] if found else []
    return [DrawnBox(box, size, kind) for box in valid[:MOST_BOXES]]


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
            for query in QuerySet(run.manifest.settings).read(Problems()):
                number = query.number or 0
                images |= dict.fromkeys(in_set.get(number, ()), query.row.image)
                if number == max(in_set):
                    break
        except (ValueError, OSError) as error:
            problems.append(f"the data set's images: {error}")
    urls = {}
    for key, image in images.items():
        try:
            urls[key] = data_url(image, LONGEST_SIDE)[0]
        except DataError as error:
            problems.append(str(error))
    return urls, problems
