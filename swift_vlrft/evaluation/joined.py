"""Predictions held against the data set that they should answer, row by row.

    rows of the set 0 1 2 3, predictions of 0 1 3 9      2 is missing, 9 is unknown

A missing row is scored as unanswered: leaving out what is hard must not pay.
"""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.answers import gold_text
from swift_vlrft.coordinates import FRAMES
from swift_vlrft.evaluation.framing import framed
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction, Predictions
from swift_vlrft.evaluation.questions import Question, Settings, questions


def join_gold(
    predictions: Predictions, dataset: Path, *, split: str | None = None, images: Path | None = None
) -> None:
    """Give every prediction the solution of its row, in the order of the set.

    Rows pair by id, which in our predictions is the number of the row, and in those of `swift
    infer` their order. EvaluationError where none pairs.
    """
    settings = Settings("", dataset, predictions.task, split=split, images=images)
    problems = predictions.problems
    left = {row.id: row for row in predictions.rows}
    rows: list[Prediction] = []
    paired = 0
    for question in questions(settings, problems):
        row = left.pop(question.id, None)
        if row is not None:
            question = _as_asked(question, row, predictions.task)
        if row is not None and row.prompt and plain(question.problem) not in plain(row.prompt):
            problems.add("rows with another prompt than the data set's, left out", question.id)
            row = None
        if row is None:
            problems.add("rows missing from the predictions, scored as unanswered", question.id)
            row = Prediction(question.id, "", "", image_id=question.image_id or question.id)
            row.prompt, row.row, row.category = question.problem, question.row, question.category
        else:
            paired += 1
        row.solution = gold_text(question.solution)
        row.frame = row.frame or question.frame
        row.aliases = row.aliases if row.aliases is not None else question.aliases
        rows.append(row)
    if not paired:
        raise EvaluationError(
            f"no prediction is of a row of {dataset}: its rows are numbered from 0, the "
            f"predictions have ids like {', '.join(list(left)[:3]) or 'none'}, or other prompts"
        )
    for key in left:
        problems.add("rows that the data set does not have, left out", key)
    predictions.rows = rows


def _as_asked(question: Question, row: Prediction, task: str) -> Question:
    """The question in the frame that the prediction says it was asked in."""
    if row.frame not in FRAMES or not row.width or not row.height:
        return question
    seen = row.seen or (row.width, row.height)
    try:
        return framed(question, task, row.frame, (row.width, row.height), lambda *_: seen)[0]
    except ValueError:
        return question


def plain(prompt: str) -> str:
    return prompt.replace("<image>", "").strip()
