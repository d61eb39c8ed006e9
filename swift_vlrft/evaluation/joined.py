"""Join predictions of another program with the data set that they answer, by ids.

    {"id": "x3", "completion": ".."}    the row with that id, or row 3 for "3" where rows have none

A missing row is scored as unanswered: leaving out hard rows must not pay. A line with another
question, gold or box format than its row is an EvaluationError. `vlrft compare` joins two files by
their ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as changed

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.image import image_hash, try_image_size
from swift_vlrft.datasets.prompt_sentences import without_box_format
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction, Predictions
from swift_vlrft.evaluation.queries import Query, QuerySet
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.parsing.labels import normalise

IMAGE_TAGS = re.compile(
    r"</?(?:\w+_)?(?:image|img|image_soft_token|IMG_CONTEXT)>|<\|[^|<>]{1,40}\|>"
)
OF_ROW = ("box_format", "aliases", "tolerance", "category", "seen", "width", "height")
"""Fields that a line has from its row where it does not state them."""


def join_gold(predictions: Predictions, queries: QuerySet) -> Predictions:
    """Return every row of the set with its answer and its solution, in the order of the set.

    EvaluationError if an answer contradicts its row, or no answer has a row.
    """
    problems, dataset = predictions.problems.joined(), queries.settings.dataset
    lines = by_id(predictions.rows, "the predictions")
    rows: dict[str, Prediction] = {}
    for query in queries.read(problems):
        row = _unanswered(query, dataset)
        key = str(query.number) if row.own_id is None else row.own_id
        if key in rows:
            raise EvaluationError(
                f"{row.place}: an earlier row has the same id, {key}; give every row its own"
            )
        rows[key] = row
        if (line := lines.get(key)) is None:
            problems.add("rows missing from the predictions, scored as unanswered", row.id)
        else:
            rows[key] = _answered(line, row)
    if not rows:
        raise EvaluationError(f"{dataset} holds no row of task {predictions.task}: {problems}")
    for key, line in lines.items():
        if key not in rows:
            problems.add(
                "rows that the data set does not have, left out", f"{line.place}: id {key}"
            )
    if not lines.keys() & rows.keys():
        raise EvaluationError(
            f"no prediction belongs to a row of {dataset}: the first prediction has the id "
            f"{next(iter(lines))}, the set's first row {next(iter(rows))}"
        )
    return replace(predictions, rows=list(rows.values()), problems=problems)


def _answered(line: Prediction, row: Prediction) -> Prediction:
    """The row with its answer; EvaluationError if the line contradicts it."""
    asked, known = question_key(line.prompt), question_key(row.prompt)
    if asked and known and asked != known:
        wrong = f"was asked {asked[:80]!r}, {row.place} asks {known[:80]!r}"
    elif line.solution and not same_gold(line.solution, row.solution):
        wrong = f"has the gold {line.solution[:80]!r}, {row.place} {row.solution[:80]!r}"
    elif line.box_format not in (None, row.box_format):
        wrong = f"has boxes in {line.box_format}, {row.place} in {row.box_format}"
    elif row.box_format == "pixels" and line.size not in (None, row.seen or row.size):
        wrong = f"has pixels of an image of {line.size}, {row.place} of {row.seen or row.size}"
    else:
        stated = {name: getattr(row, name) for name in OF_ROW if getattr(line, name) is None}
        of_row = {"id": row.id, "row": row.row, "image_id": row.image_id, "solution": row.solution}
        return changed(line, **of_row, **stated)
    raise EvaluationError(
        f"{line.place} of the predictions {wrong}: give the set that the answers were made on, or "
        "write each line's gold as 'solution' and leave --gold out"
    )


def _unanswered(query: Query, dataset: Path) -> Prediction:
    """The query with an empty answer, and with its image's size and, if it is stored, its hash."""
    image, key = query.row.image, None
    if image.get("bytes") is not None:
        with suppress(DataError):  # counted where images are shown
            key = image_hash(image)
    row = changed(
        query.unanswered(),
        solution=gold_text(query.row.solution),
        image_id=query.column("image_id") or str(key or image.get("path") or query.id),
        image_hash=key,
        place=f"row {query.id} of {dataset}",
        own_id=query.column("id"),
    )
    of = query.row.annotated_size or try_image_size(image) if row.task in BOX_TASKS else ""
    return (
        row if isinstance(of, str) else changed(row, width=round(of.width), height=round(of.height))
    )


# ---- keys, questions, golds ------------------------------------------------------------------


def question_key(prompt: str) -> str:
    """Return a prompt without image tags, box-format sentence and runs of blanks."""
    return " ".join(IMAGE_TAGS.sub(" ", without_box_format(prompt)).split())


def of_other_image(first: Prediction, second: Prediction) -> bool:
    """Return whether the images of two predictions are known, and not the same."""
    return None not in (hashes := {first.image_hash, second.image_hash}) and len(hashes) > 1


def same_gold(first: str, second: str) -> bool:
    """Return whether two golds mean the same, however they are written, boxes in any order."""
    a, b = read_boxes(first), read_boxes(second)
    if a is None or b is None or None in (*a.boxes, *b.boxes):
        return _meaning(first) == _meaning(second)
    mine, theirs = (
        sorted(zip([normalise(label or "") for label in of.labels], of.boxes, strict=True))
        for of in (a, b)
    )
    return mine == theirs


def _meaning(text: str) -> str:
    return normalise(text.replace('"', "'")) or " ".join(text.split())


def by_id(rows: Sequence[Prediction], name: str) -> dict[str, Prediction]:
    """Return rows by the ids that their file gives them; EvaluationError for none, or for two."""
    known: dict[str, Prediction] = {}
    for row in rows:
        if (key := row.own_id) is None:
            raise EvaluationError(f"{row.place} of {name} has no id, by which answers are joined")
        if (other := known.setdefault(key, row)) is not row:
            raise EvaluationError(
                f"{other.place} and {row.place} of {name} answer the same row, {key}: keep one"
            )
    return known
