"""Join predictions with the data set that they answer, row by row.

    {"row": 3, "image_hash": "9f86d081884c7d65", ..}    of `vlrft eval`: row 3, if its image is that
    {"id": "x3", ..}    --join id: the row with that id, or row 3 for "3" where rows have no ids

A missing row is scored as unanswered: leaving out hard rows must not pay. A line with another
question or gold than its row is an EvaluationError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.image import ImageSize, image_hash, try_image_size
from swift_vlrft.datasets.prompt_sentences import stated_size
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.pairing import ids_of, pair, question_key, same_gold
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Prediction,
    Predictions,
)
from swift_vlrft.evaluation.queries import Query, QuerySet
from swift_vlrft.geometry.box_format import Size
from swift_vlrft.geometry.box_format import box_format as known_format
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.rewards import TASK_NAMES

_changed = msgspec.structs.replace


def join_gold(predictions: Predictions, queries: QuerySet, join: str | None = None) -> Predictions:
    """Return every row of the set with its answer and its solution, in the order of the set.

    EvaluationError if an answer contradicts its row, or no answer has a row.
    """
    problems, lines = predictions.problems.joined(), predictions.rows
    task, dataset = predictions.task, queries.settings.dataset
    hashed = any(line.image_hash for line in lines)
    asked: list[Query] = []
    rows: list[Prediction] = []
    sizes: list[Size | None] = []
    for query in queries.read(problems):
        rows.append(_unanswered(query, dataset, hashed))
        info = try_image_size(query.row.image) if query.box_format == "pixels" else None
        sizes.append((info.width, info.height) if isinstance(info, ImageSize) else None)
        asked.append(replace(query, row=replace(query.row, image={})))
    named = [_changed(line, place=f"{line.place} of the predictions") for line in lines]
    line_keys, row_keys = _keys(named, rows, join)
    paired = pair(named, line_keys, rows, row_keys)
    if all(r is None for r in paired):
        raise EvaluationError(
            f"no prediction belongs to a row of {dataset}: the first prediction is "
            f"{_named(named[0])}, the set's first row {_named(rows[0])}"
        )
    for line, name, r in zip(lines, named, paired, strict=True):
        if r is None:
            problems.add("rows that the data set does not have, left out", _named(line))
            continue
        row = rows[r]
        try:
            answer, gold = _as_asked(asked[r], line, task, sizes[r])
        except ValueError as error:
            raise EvaluationError(f"{name.place}, joined with {row.place}: {error}") from None
        if wrong := _contradiction(line, row, gold):
            raise EvaluationError(
                f"{name.place} {wrong}: give the set that the answers were made on (if it was "
                "corrected since, remove 'solution' and 'labels', or 'prompt' and 'messages')"
            )
        rows[r] = _changed(
            answer,
            id=row.id,
            row=row.row,
            image_id=row.image_id,
            solution=gold,
            box_format=answer.box_format or row.box_format,
            aliases=row.aliases if answer.aliases is None else answer.aliases,
            tolerance=row.tolerance if answer.tolerance is None else answer.tolerance,
            category=row.category if answer.category is None else answer.category,
        )
    for r in sorted({*range(len(rows))} - {*paired}):
        problems.add("rows missing from the predictions, scored as unanswered", rows[r].id)
    return replace(predictions, rows=rows, problems=problems)


def _keys(
    lines: Sequence[Prediction], rows: Sequence[Prediction], join: str | None
) -> tuple[list[str], list[str | None]]:
    """The join keys of lines and rows."""
    numbers: list[str | None] = [str(row.row) for row in rows]
    if join is None:
        if not all(line.row is not None and line.image_hash for line in lines):
            raise EvaluationError(
                "the predictions do not carry the row and the image's hash, as those of `vlrft "
                "eval` do: give --join id to join them with the rows by their ids"
            )
        return [str(line.row) for line in lines], numbers
    if join != "id":
        raise EvaluationError(f"--join {join}: known is id")
    ids = ids_of(lines)
    if any(row.own_id is not None for row in rows):
        return ids, [row.own_id for row in rows]
    if len({*ids}) > 1 and {*ids} == {str(n + 1) for n in range(len({*ids}))}:
        raise EvaluationError(
            f"the ids are 1 to {len({*ids})}, as if counted from 1, but rows count from 0: "
            "subtract 1 from 'id', or give row 0 a line with an empty completion"
        )
    return ids, numbers


def _unanswered(query: Query, dataset: Path, hashed: bool) -> Prediction:
    """The query with an empty answer, and with its image's hash if lines have one."""
    image = query.row.image
    stored, key = image.get("bytes") is not None, None
    if stored or hashed:
        try:
            key = image_hash(image)
        except DataError:
            key = None  # counted where images are shown
    name = key if stored else image.get("path")
    return _changed(
        query.unanswered(),
        solution=gold_text(query.row.solution),
        image_id=query.column("image_id") or str(name or query.id),
        image_hash=key,
        place=f"row {query.id} of {dataset}",
        own_id=query.column("id"),
    )


def _named(row: Prediction) -> str:
    return row.place if row.own_id is None else f"{row.place}: id {row.own_id}"


def _contradiction(line: Prediction, row: Prediction, gold: str) -> str:
    """The contradiction between a line and its row, in words; "" if there is none."""
    asked, known = question_key(line.prompt), question_key(row.prompt)
    if asked and known and asked != known:
        return f"was asked {_start(asked)}, {row.place} asks {_start(known)}"
    if line.solution and not same_gold(line.solution, gold):
        return f"has the gold {_start(line.solution)}, {row.place} {_start(row.solution)}"
    return ""


def _start(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + " ...")


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
        row = _changed(row, box_format=box_format)
    if in_pixels:
        row = _changed(row, seen=seen)
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
