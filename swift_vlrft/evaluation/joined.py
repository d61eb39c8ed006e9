"""Predictions held against the data set that they should answer, row by row.

    rows of the set 0 1 2 3, predictions of 0 1 3 9      2 is missing, 9 is unknown

A missing row is scored as unanswered: leaving out what is hard must not pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.box_format_sentence import stated_size
from swift_vlrft.datasets.image import image_info, upright_bytes
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.framing import framed
from swift_vlrft.evaluation.pairing import IN_ORDER, Known, gold_key, pair, question_key
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Prediction,
    Predictions,
    Problems,
    content_key,
)
from swift_vlrft.evaluation.questions import Question, Settings, questions
from swift_vlrft.geometry.box_format import BOX_FORMATS, Size
from swift_vlrft.parsing.answers import boxes_or_refusal, gold_text
from swift_vlrft.rewards import TASK_NAMES

NEAR = 2.0
"""Pixels that a box may move by when it is written in another frame."""


def join_gold(
    predictions: Predictions, dataset: Path, *, split: str | None = None, images: Path | None = None
) -> None:
    """Give every prediction the solution of its row, in the order of the set. Rows are found as
    pairing.py says. EvaluationError where an answer and its row contradict, or none pairs.
    """
    settings = Settings("", dataset, predictions.task, split=split, images=images)
    problems, given = predictions.problems, predictions.rows
    asked: list[Question] = []
    known: list[Known] = []
    sizes: list[Size | None] = []
    for question in questions(settings, problems):
        known.append(_known_row(question, dataset))
        sizes.append(_size(question.image) if question.frame == "pixels" else None)
        asked.append(replace(question, image={"bytes": None, "path": question.image.get("path")}))
    frames = {question.frame for question in asked} - {None}

    def agrees(n: int, r: int) -> bool:
        if not given[n].solution:
            return True
        try:
            gold = _as_asked(asked[r], given[n], predictions.task, sizes[r]).solution
        except ValueError:
            return True  # it cannot be compared
        return same_gold(given[n].solution, gold_text(gold))

    own_ids = any(row.id is not None for row in known)
    answers = [known_answer(row, own_ids=own_ids, frames=frames) for row in given]
    contents = _Contents(settings)
    made = pair(answers, known, contents=contents.of, agrees=agrees)
    by_row = {r: row for row, r in zip(given, made.rows, strict=True) if r is not None}
    if not by_row:
        raise EvaluationError(
            f"no prediction is of a row of {dataset}: neither pictures and questions nor ids are "
            f"its own; the first is {_said(given[0])}, its first row is "
            f"{_said_row(known[0]) if known else 'none'}"
        )
    numbers = {answer.number for answer in answers}
    if 0 not in numbers and any(answers[n].number == len(asked) for n in made.strangers):
        raise EvaluationError(
            f"the predictions number their rows to {len(asked)} and none 0, as if counted from 1; "
            f"the {len(asked)} rows of {dataset} count from 0: subtract 1 from 'id'"
        )
    rows: list[Prediction] = []
    for n, question in enumerate(asked):
        row = by_row.get(n)
        if row is None:
            problems.add("rows missing from the predictions, scored as unanswered", question.id)
            row = Prediction(question.id, "", "")
            row.prompt, row.category = question.problem, question.category
        else:
            try:
                question = _as_asked(question, row, predictions.task, sizes[n])
            except ValueError as error:
                raise EvaluationError(
                    f"{row.place} of the predictions, paired with row {question.id} of {dataset}: "
                    f"{error}"
                ) from None
        row.id, row.row = question.id, question.row
        row.image_id = question.image_id or (known[n].pictures or (question.id,))[0]
        row.solution = gold_text(question.solution)
        row.frame = row.frame or question.frame
        row.aliases = row.aliases if row.aliases is not None else question.aliases
        row.category = row.category if row.category is not None else question.category
        rows.append(row)
    for n in made.strangers:
        problems.add("rows that the data set does not have, left out", _said(given[n]))
    for n in made.repeated:
        problems.add("duplicates, of which the first counts", given[n].place)
    for n in made.renumbered:
        problems.add("ids that number another row than picture and question name", given[n].place)
    if made.in_order:
        predictions.notes.append(
            f"{len(made.in_order)} answers were paired with the rows by their order{IN_ORDER}"
        )
    predictions.rows = rows


def known_answer(
    row: Prediction, *, own_ids: bool = False, frames: set[Any] | None = None
) -> Known:
    """What a prediction says of its question. ``own_ids``: the set has a column of ids, which an
    id is of; else it is the number of a row. ``frames``: those of the set; a gold in another one
    is not compared as it stands.
    """
    frame = row.frame or ("pixels" if stated_size(row.prompt) else None)
    comparable = frame is None or frames is None or (frame != "pixels" and frames <= {frame})
    numbered = row.stated and (row.row is not None or not own_ids)
    return Known(
        f"{row.place} of the predictions",
        row.pictures,
        question_key(row.prompt),
        gold_key(row.solution) if comparable else None,
        row.solution,
        row.id if row.stated and not numbered else None,
        int(row.id) if numbered and row.id.isdecimal() and len(row.id) < 19 else None,
    )


def same_gold(one: str, other: str) -> bool:
    """Whether two golds mean the same, boxes moved by rounding aside."""
    if gold_key(one) == gold_key(other):
        return True
    a, b = boxes_or_refusal(one), boxes_or_refusal(other)
    if a is None or b is None or len(a.boxes) != len(b.boxes):
        return False
    return all(
        first is not None
        and second is not None
        and max(abs(x - y) for x, y in zip(first, second, strict=True)) <= NEAR
        for first, second in zip(a.boxes, b.boxes, strict=True)
    )


def _known_row(question: Question, dataset: Path) -> Known:
    content, path = question.image.get("bytes"), question.image.get("path")
    names = [None if content is None else content_key(content), path, question.image_id]
    gold = gold_text(question.solution)
    return Known(
        f"row {question.id} of {dataset}",
        tuple(str(name) for name in names if name is not None),
        question_key(question.problem),
        gold_key(gold),
        gold,
        question.key,
    )


class _Contents:
    """The keys of every row's picture by content: as it is stored, and as it is trained on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys: list[list[str]] | None = None

    def of(self, n: int) -> list[str]:
        if self.keys is None:
            found = questions(self.settings, Problems())
            self.keys = [list(_content_keys(question.image)) for question in found]
        return self.keys[n]


def _content_keys(image: dict[str, Any]) -> Iterator[str]:
    try:
        content = image.get("bytes")
        yield content_key(Path(image["path"]).read_bytes() if content is None else content)
        if not image_info(image).plain:
            yield content_key(upright_bytes(image)["bytes"])
    except (DataError, OSError):
        return


def _size(image: dict[str, Any]) -> Size | None:
    try:
        head = image_info(image)
    except DataError:
        return None
    return head.width, head.height


def _as_asked(question: Question, row: Prediction, task: str, stored: Size | None) -> Question:
    """The question with its gold in the frame that the prediction says it was asked in. ValueError
    where it cannot be put there.
    """
    stated = stated_size(row.prompt)
    frame = row.frame or ("pixels" if stated else question.frame)
    if task not in BOX_TASKS or question.frame is None or frame is None:
        return question
    if frame not in BOX_FORMATS:
        raise ValueError(f"the frame {frame!r} is not known; known: {', '.join(BOX_FORMATS)}")
    whole = (row.width, row.height) if row.width and row.height else None
    seen = row.seen or stated or whole
    size = whole if row.seen and whole else stored or seen
    row.frame = row.frame or ("pixels" if stated else None)
    if frame == "pixels":
        row.seen = seen
    if frame == question.frame and (frame == "norm1000" or seen is None):
        return question
    if TASK_NAMES[task].read_gold(gold_text(question.solution)) is None:
        return question  # counted where rows are scored
    if size is None or (frame == "pixels" and seen is None):
        raise ValueError(
            f"the answer is in {frame} and the set in {question.frame}, and the line does not say "
            "of which size: write the picture's width and height into it"
        )
    gold_only = replace(question, problem="")  # what was asked is in the answer's own line
    return framed(gold_only, task, frame, size, lambda *_: seen or size)[0]


def _said(row: Prediction) -> str:
    named = f"id {row.id}" if row.stated else next(iter(row.pictures), "")
    return f"{row.place}: {named}" if named else row.place


def _said_row(row: Known) -> str:
    return f"{row.place}: {row.pictures[-1]}" if row.pictures else row.place
