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
from swift_vlrft.datasets.image import ImageSize, image_hash, try_image_size
from swift_vlrft.datasets.prompt_sentences import stated_size, without_box_format
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction, Predictions
from swift_vlrft.evaluation.queries import Query, QuerySet
from swift_vlrft.files.jsonl import finite
from swift_vlrft.geometry.box_format import Size, box_format
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
    problems, lines = predictions.problems.joined(), predictions.rows
    dataset, hashed = queries.settings.dataset, any(line.image_hash for line in lines)
    asked: list[Query] = []
    rows: list[Prediction] = []
    sizes: list[Size | None] = []
    for query in queries.read(problems):
        rows.append(_unanswered(query, dataset, hashed))
        info = try_image_size(query.row.image) if query.box_format == "pixels" else None
        sizes.append((info.width, info.height) if isinstance(info, ImageSize) else None)
        # A line has its own prompt, and images would fill the memory.
        asked.append(replace(query, row=replace(query.row, image={}, problem="")))
    named = [changed(line, place=f"{line.place} of the predictions") for line in lines]
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
            gold = _gold_in_format_of(line, asked[r], predictions.task, sizes[r])
        except ValueError as error:
            raise EvaluationError(f"{name.place}, joined with {row.place}: {error}") from None
        if wrong := _contradiction(line, row, gold):
            raise EvaluationError(
                f"{name.place} {wrong}: give the set that the answers were made on (if it was "
                "corrected since, remove 'solution' and 'prompt')"
            )
        stated = {
            field: getattr(row, field)
            for field in ("box_format", "aliases", "tolerance", "category")
            if getattr(line, field) is None
        }
        rows[r] = changed(
            line, id=row.id, row=row.row, image_id=row.image_id, solution=gold, **stated
        )
    for r in sorted({*range(len(rows))} - {*paired}):
        problems.add("rows missing from the predictions, scored as unanswered", rows[r].id)
    return replace(predictions, rows=rows, problems=problems)


def _keys(
    lines: Sequence[Prediction], rows: Sequence[Prediction], join: str | None
) -> tuple[list[str], Sequence[str | None]]:
    """The join keys of lines and rows."""
    numbers = [str(row.row) for row in rows]
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
    return changed(
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
        return f"was asked {asked[:80]!r}, {row.place} asks {known[:80]!r}"
    if line.solution and not same_gold(line.solution, gold):
        return f"has the gold {line.solution[:80]!r}, {row.place} {row.solution[:80]!r}"
    return ""


def _gold_in_format_of(line: Prediction, query: Query, task: str, stored: Size | None) -> str:
    """The row's gold in the box format of its answer; ``stored`` is the image's size, if known."""
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
    size = line.size if line.seen and line.size else stored or seen
    if not in_pixels and not stored_in_pixels:
        size = size or (1, 1)  # of no pixels
    if size is None or (in_pixels and seen is None):
        raise ValueError(
            f"the answer is in {asked} and the set in {own}, but the line does not say how large "
            "the image is: add its width and height"
        )
    return gold_text(query.rewritten(asked, size, seen or size).row.solution)


# ---- keys, questions, golds ------------------------------------------------------------------


def question_key(prompt: str) -> str:
    """Return a prompt without image tags, box-format sentence and runs of blanks."""
    return " ".join(IMAGE_TAGS.sub(" ", without_box_format(prompt)).split())


def same_gold(first: str, second: str) -> bool:
    """Return whether two golds mean the same, however they are written, but for a box's rounding.

    The boxes of both are in the same order.
    """
    a, b = read_boxes(first), read_boxes(second)
    if a is None or b is None or None in (*a.boxes, *b.boxes):
        return _meaning(first) == _meaning(second)
    numbers = [[v for box in side.boxes if box for v in box] for side in (a, b)]
    near = ROUNDING if max(numbers[1], default=0.0) > 1.0 else ROUNDING / 1000  # normalized to 0-1
    labels = [[normalise(label or "") for label in side.labels] for side in (a, b)]
    return labels[0] == labels[1] and all(abs(x - y) <= near for x, y in zip(*numbers, strict=True))


def _meaning(text: str) -> float | str:
    number = finite(text)
    if number is not None:
        return number
    return normalise(text.replace('"', "'")) or " ".join(text.split())


def ids_of(rows: Sequence[Prediction]) -> list[str]:
    """Return the id that the file gives each row; EvaluationError for a row without one."""
    for row in rows:
        if row.own_id is None:
            raise EvaluationError(f"{row.place} has no id, by which answers are joined")
    return [str(row.own_id) for row in rows]


def pair(
    lines: Sequence[Prediction],
    line_keys: Sequence[str],
    rows: Sequence[Prediction],
    row_keys: Sequence[str | None],
) -> list[int | None]:
    """Return the number of each line's row, by their keys; None if no row has the line's key."""
    rows_of: dict[str | None, list[int]] = {}
    for r, row_key in enumerate(row_keys):
        rows_of.setdefault(row_key, []).append(r)
    pairs: list[int | None] = []
    line_of: dict[int, Prediction] = {}
    for line, key in zip(lines, line_keys, strict=True):
        matches = rows_of.get(key, [])
        if len(matches) > 1:
            some = " and ".join(rows[r].place for r in matches[:2])
            raise EvaluationError(f"{line.place} fits {len(matches)} rows, such as {some}")
        for r in matches:
            if other := line_of.get(r):
                raise EvaluationError(f"{other.place} and {line.place} both fit {rows[r].place}")
            hashes = line.image_hash, rows[r].image_hash
            if None not in hashes and hashes[0] != hashes[1]:
                raise EvaluationError(
                    f"{line.place} is of an image with the hash {hashes[0]}, and "
                    f"{rows[r].place} of one with {hashes[1]}: give the set that was answered"
                )
            line_of[r] = line
        pairs.append(matches[0] if matches else None)
    return pairs
