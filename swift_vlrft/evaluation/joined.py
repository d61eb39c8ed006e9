"""Join predictions with the data set that they answer, row by row.

    {"row": 3, "image_hash": "9f86d081884c7d65", ..}    of `vlrft eval`: row 3, if its image is that
    {"id": "x3", ..}    --join id: the row with that id, or row 3 for "3" where rows have no ids

A missing row is scored as unanswered: leaving out hard rows must not pay. A line with another
question or gold than its row is an EvaluationError. `vlrft compare` joins two files by their ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as changed

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.image import image_hash, try_image_size
from swift_vlrft.datasets.prompt_sentences import stated_size, without_box_format
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction, Predictions
from swift_vlrft.evaluation.queries import Query, QuerySet
from swift_vlrft.files.jsonl import finite
from swift_vlrft.geometry.box_format import box_format
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.parsing.labels import normalise
from swift_vlrft.rewards import TASK_NAMES

ROUNDING = 2.0
"""Pixels, or thousandths, by which a box may move when it is converted to another box format."""
IMAGE_TAGS = re.compile(
    r"</?(?:\w+_)?(?:image|img|image_soft_token|IMG_CONTEXT)>|<\|[^|<>]{1,40}\|>"
)


def join_gold(predictions: Predictions, queries: QuerySet, join: str | None = None) -> Predictions:
    """Return every row of the set with its answer and its solution, in the order of the set.

    EvaluationError if an answer contradicts its row, or no answer has a row.
    """
    problems, dataset = predictions.problems.joined(), queries.settings.dataset
    keys = _keys(predictions.rows, join)
    lines = by_key(predictions.rows, keys, "the predictions")
    from_1 = len(keys) > 1 and {*keys} == {str(n + 1) for n in range(len(keys))}
    hashed = any(line.image_hash for line in lines.values())
    rows: dict[str, Prediction] = {}
    for query in queries.read(problems):
        row, key = _unanswered(query, dataset, hashed), str(query.number)
        if join is not None and row.own_id is not None:
            key = row.own_id
        elif join is not None and from_1:
            raise EvaluationError(
                f"the ids are 1 to {len(keys)}, as if counted from 1, but rows count from 0: "
                "subtract 1 from 'id', or give row 0 a line with an empty completion"
            )
        if key in rows:
            raise EvaluationError(
                f"{row.place}: an earlier row has the same id, {key}; give every row its own"
            )
        rows[key] = row
        if (line := lines.get(key)) is None:
            problems.add("rows missing from the predictions, scored as unanswered", row.id)
        else:
            rows[key] = _answered(line, row, query, predictions.task)
        if predictions.task in BOX_TASKS and rows[key].size is None and (size := _size(query)):
            rows[key] = changed(rows[key], width=size[0], height=size[1])
    if not rows:
        raise EvaluationError(f"{dataset} holds no row of task {predictions.task}: {problems}")
    for key, line in lines.items():
        if key not in rows:
            problems.add("rows that the data set does not have, left out", _named(line))
    if not lines.keys() & rows.keys():
        first, of_set = _named(predictions.rows[0]), _named(next(iter(rows.values())))
        raise EvaluationError(
            f"no prediction belongs to a row of {dataset}: the first prediction is {first}, the "
            f"set's first row {of_set}"
        )
    return replace(predictions, rows=list(rows.values()), problems=problems)


def _keys(lines: Sequence[Prediction], join: str | None) -> list[str]:
    """The join keys of lines: numbers of rows, or with ``join`` their ids."""
    if join == "id":
        return ids_of(lines, "the predictions")
    if join is not None:
        raise EvaluationError(f"--join {join}: known is id")
    if not all(line.row is not None and line.image_hash for line in lines):
        raise EvaluationError(
            "the predictions do not carry the row and the image's hash, as those of `vlrft eval` "
            "do: give --join id to join them with the rows by their ids"
        )
    return [str(line.row) for line in lines]


def _answered(line: Prediction, row: Prediction, query: Query, task: str) -> Prediction:
    """The row with its answer; EvaluationError if the line contradicts it."""
    place = f"{line.place} of the predictions"
    asked, known = question_key(line.prompt), question_key(row.prompt)
    try:
        gold = _gold_in_format_of(line, query, task)
    except ValueError as error:
        raise EvaluationError(f"{place}, joined with {row.place}: {error}") from None
    if of_other_image(line, row):
        wrong = f"has an image of the hash {line.image_hash}, {row.place} of {row.image_hash}"
    elif asked and known and asked != known:
        wrong = f"was asked {asked[:80]!r}, {row.place} asks {known[:80]!r}"
    elif line.solution and not same_gold(line.solution, gold):
        wrong = f"has the gold {line.solution[:80]!r}, {row.place} {row.solution[:80]!r}"
    else:
        stated = {
            name: getattr(row, name)
            for name in ("box_format", "aliases", "tolerance", "category")
            if getattr(line, name) is None
        }
        return changed(line, id=row.id, row=row.row, image_id=row.image_id, solution=gold, **stated)
    raise EvaluationError(
        f"{place} {wrong}: give the set that the answers were made on (if it was corrected since, "
        "remove 'solution' and 'prompt')"
    )


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
    return changed(
        query.unanswered(),
        solution=gold_text(query.row.solution),
        image_id=query.column("image_id") or str(name or query.id),
        image_hash=key,
        place=f"row {query.id} of {dataset}",
        own_id=query.column("id"),
    )


def _size(query: Query) -> tuple[int, int] | None:
    """The size of the row's image, as its set states it, or as it is; None if it is not known."""
    of = query.row.annotated_size or try_image_size(query.row.image)
    return None if isinstance(of, str) else (round(of.width), round(of.height))


def _named(row: Prediction) -> str:
    return row.place if row.own_id is None else f"{row.place}: id {row.own_id}"


def _gold_in_format_of(line: Prediction, query: Query, task: str) -> str:
    """The row's gold in the box format of its answer."""
    gold, own = gold_text(query.row.solution), query.box_format
    if task not in BOX_TASKS or own is None or TASK_NAMES[task].read_gold(gold) is None:
        return gold  # if it cannot be read, it is counted where rows are scored
    if line.box_format is None and stated_size(line.prompt):
        raise ValueError("its prompt asks for pixels: add 'frame': 'pixels', and width and height")
    asked = line.box_format or own
    in_pixels, stored_in_pixels = (box_format(name).scale is None for name in (asked, own))
    seen = line.seen or line.size
    if asked == own and not (in_pixels and seen):
        return gold
    size = line.size if line.seen else None
    if size is None and stored_in_pixels:
        size = _size(query)
    elif size is None and not in_pixels:
        size = 1, 1  # of no pixels
    size = size or seen
    if size is None or (in_pixels and seen is None):
        raise ValueError(
            f"the answer is in {asked} and the set in {own}, but the line does not say how large "
            "the image is: add its width and height"
        )
    alone = replace(query, row=replace(query.row, problem=""))  # the prompt is the line's
    return gold_text(alone.rewritten(asked, size, seen or size).row.solution)


# ---- keys, questions, golds ------------------------------------------------------------------


def question_key(prompt: str) -> str:
    """Return a prompt without image tags, box-format sentence and runs of blanks."""
    return " ".join(IMAGE_TAGS.sub(" ", without_box_format(prompt)).split())


def of_other_image(first: Prediction, second: Prediction) -> bool:
    """Return whether the images of two predictions are known, and not the same."""
    return None not in (hashes := {first.image_hash, second.image_hash}) and len(hashes) > 1


def same_gold(first: str, second: str) -> bool:
    """Return whether two golds mean the same, however they are written.

    Boxes may differ by ``ROUNDING`` and stand in another order.
    """
    a, b = read_boxes(first), read_boxes(second)
    if a is None or b is None or None in (*a.boxes, *b.boxes):
        return _meaning(first) == _meaning(second)
    mine, theirs = (
        sorted(zip([normalise(label or "") for label in of.labels], of.boxes, strict=True))
        for of in (a, b)
    )
    largest = max((max(box) for _, box in theirs if box), default=0.0)
    near = ROUNDING if largest > 1.0 else ROUNDING / 1000  # normalized to 0-1
    return len(mine) == len(theirs) and all(
        label == other
        and all(abs(x - y) <= near for x, y in zip(box or (), beside or (), strict=True))
        for (label, box), (other, beside) in zip(mine, theirs, strict=True)
    )


def _meaning(text: str) -> float | str:
    number = finite(text)
    if number is not None:
        return number
    return normalise(text.replace('"', "'")) or " ".join(text.split())


def ids_of(rows: Sequence[Prediction], name: str) -> list[str]:
    """Return the id that the file gives each row; EvaluationError for a row without one."""
    for row in rows:
        if row.own_id is None:
            raise EvaluationError(f"{row.place} of {name} has no id, by which answers are joined")
    return [str(row.own_id) for row in rows]


def by_key(rows: Sequence[Prediction], keys: Sequence[str], name: str) -> dict[str, Prediction]:
    """Return the rows by their keys; EvaluationError if two have the same."""
    known: dict[str, Prediction] = {}
    for row, key in zip(rows, keys, strict=True):
        if (other := known.setdefault(key, row)) is not row:
            raise EvaluationError(
                f"{other.place} and {row.place} of {name} answer the same row, {key}: keep one"
            )
    return known
