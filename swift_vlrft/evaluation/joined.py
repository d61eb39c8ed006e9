"""Predictions joined with the data set that they answer, row by row.

    rows of the set 0 1 2 3, predictions of 0 1 3 9      2 is missing, 9 is unknown

A missing row is scored as unanswered: leaving out hard rows must not pay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.box_format_sentence import stated_size
from swift_vlrft.datasets.image import image_info, upright_bytes
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.pairing import IN_ORDER, Known, Pairing, gold_key, pair, question_key
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Prediction,
    Predictions,
    Problems,
    content_key,
)
from swift_vlrft.evaluation.queries import Query, QuerySet
from swift_vlrft.geometry.box_format import BOX_FORMATS, Size
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.rewards import TASK_NAMES

NEAR = 2.0
"""Pixels by which a box may move when it is converted to another box format."""


def join_gold(predictions: Predictions, queries: QuerySet) -> Predictions:
    """Every row of the set with its answer and its solution, in the order of the set. Rows are
    paired by pairing.py. EvaluationError if an answer contradicts its row, or none can be paired.
    """
    problems, lines = predictions.problems.joined(), predictions.rows
    dataset, task = queries.settings.dataset, predictions.task
    rows: list[Query] = []
    known: list[Known] = []
    sizes: list[Size | None] = []
    for query in queries.read(problems):
        known.append(_known_row(query, dataset))
        sizes.append(_size(query.row.image) if query.box_format == "pixels" else None)
        path = {"bytes": None, "path": query.row.image.get("path")}
        rows.append(replace(query, row=replace(query.row, image=path)))
    formats = {query.box_format for query in rows} - {None}

    def agrees(n: int, r: int) -> bool:
        if not lines[n].solution:
            return True
        try:
            gold = _as_asked(rows[r], lines[n], task, sizes[r])[1]
        except ValueError:
            return True  # it cannot be compared
        return same_gold(lines[n].solution, gold)

    @cache
    def contents() -> list[list[str]]:
        return [_content_keys(query.row.image) for query in queries.read(Problems())]

    has_ids = any(row.id is not None for row in known)
    answers = [known_answer(row, has_ids=has_ids, box_formats=formats) for row in lines]
    pairing = pair(answers, known, contents=lambda n: contents()[n], agrees=agrees)
    _refuse_none(pairing, lines, answers, known, dataset)
    by_row = {r: row for row, r in zip(lines, pairing.rows, strict=True) if r is not None}
    joined: list[Prediction] = []
    for n, query in enumerate(rows):
        row = by_row.get(n)
        if row is None:
            problems.add("rows missing from the predictions, scored as unanswered", query.id)
        try:
            joined.append(_joined(query, row, known[n], task, sizes[n]))
        except ValueError as error:
            where = f"{row.place if row else ''} of the predictions, paired with {known[n].place}"
            raise EvaluationError(f"{where}: {error}") from None
    of_lines = {
        "rows that the data set does not have, left out": pairing.strangers,
        "duplicates, of which the first counts": pairing.repeated,
        "ids that number another row than image and question name": pairing.renumbered,
    }
    for kind, numbers in of_lines.items():
        for n in numbers:
            problems.add(kind, _named(lines[n]) if numbers is pairing.strangers else lines[n].place)
    in_order = f"{len(pairing.in_order)} answers were paired with the rows by their order{IN_ORDER}"
    notes = predictions.notes + [in_order] * bool(pairing.in_order)
    return replace(predictions, rows=joined, problems=problems, notes=notes)


def _joined(
    query: Query, row: Prediction | None, known: Known, task: str, stored: Size | None
) -> Prediction:
    """The answer to the query, empty if there is none. ValueError: see _as_asked."""
    columns = query.row.columns
    if row is None:
        row, gold = (
            Prediction(query.id, "", prompt=query.row.problem),
            gold_text(query.row.solution),
        )
    else:
        row, gold = _as_asked(query, row, task, stored)
    return msgspec.structs.replace(
        row,
        id=query.id,
        row=query.number,
        image_id=query.column("image_id") or (known.images or (query.id,))[0],
        solution=gold,
        box_format=row.box_format or query.box_format,
        aliases=columns.get("aliases") if row.aliases is None else row.aliases,
        category=query.category if row.category is None else row.category,
    )


def _refuse_none(
    pairing: Pairing,
    lines: list[Prediction],
    answers: list[Known],
    known: list[Known],
    dataset: Path,
) -> None:
    if all(row is None for row in pairing.rows):
        row = f"{known[0].place}: {known[0].images[-1]}" if known and known[0].images else "none"
        raise EvaluationError(
            f"no prediction is of a row of {dataset}: neither images and questions nor ids are "
            f"its own; the first is {_named(lines[0])}, its first row is {row}"
        )
    numbers = {answer.number for answer in answers}
    if 0 not in numbers and any(answers[n].number == len(known) for n in pairing.strangers):
        raise EvaluationError(
            f"the predictions number their rows to {len(known)} and none 0, as if counted from 1; "
            f"the {len(known)} rows of {dataset} count from 0: subtract 1 from 'id'"
        )


def _named(row: Prediction) -> str:
    name = f"id {row.id}" if row.has_id else next(iter(row.image_names), "")
    return f"{row.place}: {name}" if name else row.place


def known_answer(
    row: Prediction, *, has_ids: bool = False, box_formats: Iterable[Any] = ()
) -> Known:
    """What a prediction states about its query. ``has_ids``: the set has an id column that its id
    refers to; else its id is a row number. ``box_formats``: those of the set; gold in another
    format is not compared as text.
    """
    box_format = row.box_format or ("pixels" if stated_size(row.prompt) else None)
    comparable = box_format is None or (box_format != "pixels" and set(box_formats) <= {box_format})
    numbered = row.has_id and (row.row is not None or not has_ids)
    return Known(
        f"{row.place} of the predictions",
        row.image_names,
        question_key(row.prompt),
        gold_key(row.solution) if comparable else None,
        row.solution,
        row.id if row.has_id and not numbered else None,
        int(row.id) if numbered and row.id.isdecimal() and len(row.id) < 19 else None,
    )


def same_gold(first_text: str, second_text: str) -> bool:
    """Whether two golds are the same, apart from rounding of boxes."""
    if gold_key(first_text) == gold_key(second_text):
        return True
    a, b = read_boxes(first_text), read_boxes(second_text)
    if a is None or b is None or len(a.boxes) != len(b.boxes):
        return False
    return all(
        first is not None
        and second is not None
        and max(abs(x - y) for x, y in zip(first, second, strict=True)) <= NEAR
        for first, second in zip(a.boxes, b.boxes, strict=True)
    )


def _known_row(query: Query, dataset: Path) -> Known:
    content, path = query.row.image.get("bytes"), query.row.image.get("path")
    names = [None if content is None else content_key(content), path, query.column("image_id")]
    gold = gold_text(query.row.solution)
    return Known(
        f"row {query.id} of {dataset}",
        tuple(str(name) for name in names if name is not None),
        question_key(query.row.problem),
        gold_key(gold),
        gold,
        query.column("id"),
    )


def _content_keys(image: dict[str, Any]) -> list[str]:
    """The content keys of an image: as stored, and as trained on."""
    try:
        content = image.get("bytes")
        content = Path(image["path"]).read_bytes() if content is None else content
        turned = [] if image_info(image).plain else [upright_bytes(image)["bytes"]]
    except (DataError, OSError):
        return []
    return [content_key(one) for one in (content, *turned)]


def _size(image: dict[str, Any]) -> Size | None:
    try:
        head = image_info(image)
    except DataError:
        return None
    return head.width, head.height


def _as_asked(
    query: Query, row: Prediction, task: str, stored: Size | None
) -> tuple[Prediction, str]:
    """The answer with the box format that its prompt asked for, and its row's gold in that format.
    ValueError if the gold cannot be converted.
    """
    gold, prompt_size = gold_text(query.row.solution), stated_size(row.prompt)
    box_format = row.box_format or ("pixels" if prompt_size else query.box_format)
    if task not in BOX_TASKS or query.box_format is None or box_format is None:
        return row, gold
    if box_format not in BOX_FORMATS:
        raise ValueError(f"unknown box format {box_format!r}; known: {', '.join(BOX_FORMATS)}")
    seen = row.seen or prompt_size or row.size
    size = row.size if row.seen and row.size else stored or seen
    if prompt_size or row.box_format is not None:
        row = msgspec.structs.replace(row, box_format=box_format)
    if box_format == "pixels":
        row = msgspec.structs.replace(row, seen=seen)
    if box_format == query.box_format and (box_format == "norm1000" or seen is None):
        return row, gold
    if TASK_NAMES[task].read_gold(gold) is None:
        return row, gold  # counted where rows are scored
    if size is None or (box_format == "pixels" and seen is None):
        raise ValueError(
            f"the answer is in {box_format} and the set in {query.box_format}, and the line does "
            "not say of which size: write the image's width and height into it"
        )
    # The prompt is in the answer's line.
    gold_alone = replace(query, row=replace(query.row, problem=""))
    return row, gold_text(gold_alone.rewritten(box_format, size, seen or size).row.solution)
