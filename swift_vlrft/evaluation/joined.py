"""Join predictions with the data set that they answer, row by row.

    rows of the set 0 1 2 3, predictions of 0 1 3 9      2 is missing, 9 is unknown

A missing row is scored as unanswered: leaving out hard rows must not pay.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.image import content_key, image_info, upright_bytes
from swift_vlrft.datasets.prompt_sentences import stated_size
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.pairing import gold_key, pair
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Prediction,
    Predictions,
    Problems,
)
from swift_vlrft.evaluation.queries import Query, QuerySet
from swift_vlrft.geometry.box_format import Size
from swift_vlrft.geometry.box_format import box_format as known_format
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.rewards import TASK_NAMES

NEAR = 2.0
"""Pixels, or thousandths, by which a box may move when it is converted to another box format."""


def join_gold(predictions: Predictions, queries: QuerySet, join: str | None = None) -> Predictions:
    """Return every row of the set with its answer and its solution, in the order of the set. Rows
    are paired by pairing.py. EvaluationError if an answer contradicts its row, or none is of a row.
    """
    problems, lines = predictions.problems.joined(), predictions.rows
    task, dataset = predictions.task, queries.settings.dataset
    asked: list[Query] = []
    rows: list[Prediction] = []
    sizes: list[Size | None] = []
    for query in queries.read(problems):
        rows.append(_unanswered(query, dataset))
        sizes.append(_size(query.row.image) if query.box_format == "pixels" else None)
        asked.append(replace(query, row=replace(query.row, image={})))

    def agrees(n: int, r: int) -> bool:
        try:
            gold = _as_asked(asked[r], lines[n], task, sizes[r])[1]
        except ValueError:
            return True  # it cannot be compared
        return not lines[n].solution or same_gold(lines[n].solution, gold)

    @cache
    def contents() -> list[list[str]]:
        return [_content_keys(query.row.image) for query in queries.read(Problems())]

    answers = [_renamed(row, place=f"{row.place} of the predictions") for row in lines]
    paired = pair(answers, rows, join, contents=lambda n: contents()[n], agrees=agrees)
    if all(r is None for r in paired):
        raise EvaluationError(
            f"no prediction belongs to a row of {dataset}: the first prediction is "
            f"{_named(answers[0])}, the set's first row {_named(rows[0])}"
        )
    for n, r in enumerate(paired):
        if r is None:
            what = "rows that the data set does not have, left out"
            problems.add(what, _named(lines[n]))
            continue
        try:
            line, gold = _as_asked(asked[r], lines[n], task, sizes[r])
        except ValueError as error:
            where = f"{answers[n].place}, joined with {rows[r].place}"
            raise EvaluationError(f"{where}: {error}") from None
        row = rows[r]
        rows[r] = _renamed(
            line,
            id=row.id,
            row=row.row,
            image_id=row.image_id,
            solution=gold,
            box_format=line.box_format or row.box_format,
            aliases=row.aliases if line.aliases is None else line.aliases,
            tolerance=row.tolerance if line.tolerance is None else line.tolerance,
            category=row.category if line.category is None else line.category,
        )
    for r in sorted({*range(len(rows))} - {*paired}):
        problems.add("rows missing from the predictions, scored as unanswered", rows[r].id)
    return replace(predictions, rows=rows, problems=problems)


_renamed = msgspec.structs.replace


def _unanswered(query: Query, dataset: Path) -> Prediction:
    """The query with an empty answer."""
    content, path = query.row.image.get("bytes"), query.row.image.get("path")
    known = [None if content is None else content_key(content), path, query.column("image_id")]
    if path and os.path.isabs(path):
        known.append(os.path.relpath(path, dataset if dataset.is_dir() else dataset.parent))
    names = [str(name) for name in known if name is not None]
    return _renamed(
        query.unanswered(),
        solution=gold_text(query.row.solution),
        image_id=query.column("image_id") or (names or [query.id])[0],
        place=f"row {query.id} of {dataset}",
        own_id=query.column("id"),
        image_names=tuple(names),
    )


def _named(row: Prediction) -> str:
    name = next(iter(row.image_names), "") if row.own_id is None else f"id {row.own_id}"
    return f"{row.place}: {name}" if name else row.place


def same_gold(first_text: str, second_text: str) -> bool:
    """Return whether two golds are the same, apart from rounding of boxes."""
    if gold_key(first_text) == gold_key(second_text):
        return True
    a, b = read_boxes(first_text), read_boxes(second_text)
    largest = max((max(box) for box in (b.boxes if b is not None else ()) if box), default=0.0)
    near = NEAR if largest > 1.0 else NEAR / 1000  # shares of the sides
    return (
        a is not None
        and b is not None
        and len(a.boxes) == len(b.boxes)
        and all(
            first and second and all(abs(x - y) <= near for x, y in zip(first, second, strict=True))
            for first, second in zip(a.boxes, b.boxes, strict=True)
        )
    )


def _content_keys(image: dict[str, Any]) -> list[str]:
    """The content keys of an image: as stored, and as trained on."""
    try:
        content = image.get("bytes")
        content = Path(image["path"]).read_bytes() if content is None else content
        turned = [] if image_info(image).plain else [upright_bytes(image)["bytes"]]
    except (DataError, OSError):
        return []
    return [content_key(data) for data in (content, *turned)]


def _size(image: dict[str, Any]) -> Size | None:
    try:
        head = image_info(image)
    except DataError:
        return None
    return head.width, head.height


def _as_asked(
    query: Query, row: Prediction, task: str, stored: Size | None
) -> tuple[Prediction, str]:
    """The answer with the box format that its prompt asked for, and its row's gold in it."""
    gold, prompt_size = gold_text(query.row.solution), stated_size(row.prompt)
    box_format = row.box_format or ("pixels" if prompt_size else query.box_format)
    if task not in BOX_TASKS or query.box_format is None or box_format is None:
        return row, gold
    in_pixels = known_format(box_format).scale is None
    seen = row.seen or prompt_size or row.size
    size = row.size if row.seen and row.size else stored or seen
    if prompt_size or row.box_format is not None:
        row = _renamed(row, box_format=box_format)
    if in_pixels:
        row = _renamed(row, seen=seen)
    if box_format == query.box_format and not (in_pixels and seen):
        return row, gold
    if TASK_NAMES[task].read_gold(gold) is None:
        return row, gold  # counted where rows are scored
    if not in_pixels and known_format(query.box_format).scale is not None:
        size = size or (1, 1)  # of no pixels
    if size is None or (in_pixels and seen is None):
        raise ValueError(
            f"the answer is in {box_format} and the set in {query.box_format}, but the line does "
            "not say how large the image is: add its width and height"
        )
    # The prompt is in the answer's line.
    gold_alone = replace(query, row=replace(query.row, problem=""))
    return row, gold_text(gold_alone.rewritten(box_format, size, seen or size).row.solution)
