"""Pick rows of an evaluation for the report: image, boxes, answer, score and reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.compare import RIGHT, Comparison
from swift_vlrft.evaluation.metrics import reason_of
from swift_vlrft.evaluation.predictions import Prediction, Problems
from swift_vlrft.evaluation.queries import QuerySet
from swift_vlrft.evaluation.run import SavedRun
from swift_vlrft.parsing.answers import BoxList, gold_text, read, read_boxes
from swift_vlrft.parsing.spans import read_spans
from swift_vlrft.parsing.turns import earlier_turns
from swift_vlrft.report.html import DrawnBox, data_url, drawn_spans
from swift_vlrft.rewards import TASK_NAMES

LONGEST_SIDE = 480
MOST_BOXES = 200
MOST_KINDS = 6
IN_THOUSANDTHS = (1000.0, 1000.0)
"""The size of an image in the numbers of crops."""


class Side(NamedTuple):
    """One model's answer to a row; ``name`` is before, after, or answer."""

    name: str
    completion: str
    score: float | None
    reason: str


class Sample(NamedTuple):
    """A row on the page, with its image as a URL and the boxes over it."""

    row: Prediction
    sides: list[Side]
    url: str
    boxes: list[DrawnBox]


def samples(
    runs: dict[str, SavedRun], result: Comparison | None, count: int
) -> tuple[list[tuple[str, list[Sample]]], list[str]]:
    """Return at most ``count`` rows of each kind, and why some have no image."""
    run = next(iter(runs.values()), None)
    if run is None or not count:
        return [], []
    by_id = {name: {row.id: row for row in side.predictions.rows} for name, side in runs.items()}
    first, last = (list(by_id.values())[n] for n in (0, -1))
    shared = [row for key, row in last.items() if key in first]
    picked = _picked(run.predictions.task, shared, result, count)
    ids = [key for keys in picked.values() for key in keys]
    urls, problems = _images([first[key] for key in ids], run)

    def shown(key: str) -> Sample:
        rows = {name: rows[key] for name, rows in by_id.items() if key in rows}
        return _sample(run.predictions.task, rows, urls.get(key, ""))

    return [(heading, list(map(shown, keys))) for heading, keys in picked.items()], problems


def _picked(
    task: str, rows: Sequence[Prediction], result: Comparison | None, count: int
) -> dict[str, list[str]]:
    """The ids of the rows to show, by kind; ``rows`` are the answers after, or the only ones."""
    kinds: dict[str, list[str]] = {}
    if result is not None:
        kinds["Became right"] = [flip.id for flip in result.gained]
        kinds["Became wrong"] = [flip.id for flip in result.lost]
        crossed = {key for keys in kinds.values() for key in keys}
        others = [flip for flip in result.changed if flip.id not in crossed]
        kinds["Gained points"] = [flip.id for flip in others if flip.b > flip.a]
        kinds["Lost points"] = [flip.id for flip in reversed(others) if flip.b < flip.a]
    wrong: dict[str, list[str]] = {}
    right = []
    lost = set(kinds.get("Became wrong", ()))
    for row in rows:
        reason = reason_of(task, row)
        if reason.score is not None and reason.score >= RIGHT:
            right.append((-reason.score, row.id))
        elif reason.score is not None and row.id not in lost:
            wrong.setdefault(reason.code, []).append(row.id)
    if result is None:
        kinds["Right"] = [key for _, key in sorted(right)]
    for code, still in sorted(wrong.items(), key=lambda item: -len(item[1])):
        heading = f"{'Still wrong' if result else 'Wrong'}: {code.replace('_', ' ')}"
        kinds[f"{heading} ({len(still)} of {len(rows)} rows)"] = still
    picked: dict[str, list[str]] = {}
    taken: set[str] = set()
    for heading, keys in kinds.items():
        chosen = [key for key in keys if key not in taken][:count]
        if chosen and len(picked) < MOST_KINDS:
            picked[heading] = chosen
            taken |= set(chosen)
    return picked


def _sample(task: str, rows: dict[str, Prediction], url: str) -> Sample:
    row = next(iter(rows.values()))
    video = row.image if url and TASK_NAMES[task].has_spans else None
    sides, boxes = [], []
    if task in BOX_TASKS:
        boxes = drawn_boxes(read_boxes(row.solution), row.box_range, "gold")
    if video:
        boxes = drawn_spans(read_spans(gold_text(row.solution)), video, "gold")
    for name, answer in rows.items():
        reason, turns = reason_of(task, answer), earlier_turns(answer.turns)
        said = [text for turn in turns for text in (turn["text"], turn.get("said")) if text]
        sides.append(Side(name, "\n".join([*said, answer.completion]), reason.score, reason.text))
        for turn in turns:
            boxes += drawn_boxes(read_boxes(gold_text(turn.get("crop"))), IN_THOUSANDTHS, name)
        if task in BOX_TASKS:
            points = TASK_NAMES[task].has_points
            placed = read(answer.completion).placed(points=points)
            boxes += drawn_boxes(placed, answer.box_range, f"{name} point" if points else name)
        if video:
            boxes += drawn_spans(read(answer.completion).spans, video, name)
    return Sample(row, sides, url, boxes)


def drawn_boxes(
    boxes: BoxList | None, size: tuple[float, float] | None, kind: str
) -> list[DrawnBox]:
    """Return the first valid boxes, over an image whose coordinates run to ``size`` if known."""
    if boxes is None or size is None:
        return []
    valid = [box for box in boxes.boxes if box is not None]
    return [DrawnBox(box, size, kind) for box in valid[:MOST_BOXES]]


def _images(rows: Sequence[Prediction], run: SavedRun) -> tuple[dict[str, str], list[str]]:
    """The data URLs of images by row id, and why a row has none."""
    images: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    in_set: dict[int, list[str]] = {}
    for row in rows:
        if row.image is not None and Path(row.image).is_file():
            video = TASK_NAMES[run.predictions.task].has_spans
            images[row.id] = {"bytes": None, "path": row.image, "video": video}
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
