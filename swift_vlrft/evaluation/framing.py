"""A question in the frame that the model was trained in, as ``--dataset PATH:pixels`` trains it.

    asked    "... (between 0 and 1000, integer) ..."                 the row, norm1000
    framed   "... (in pixels, x from 0 to 644 and y from 0 to 476, integer) ..."

Gold goes with it, so an answer is scored by the numbers that the prompt asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from swift_vlrft.datasets.box_format import in_box_format
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.questions import Question
from swift_vlrft.geometry.box_format import BOX_FORMATS, Size


def split_box_format(text: str) -> tuple[Path, str]:
    """Path and frame of ``PATH[:norm1000|pixels]``; ValueError names what is unknown."""
    path, _, frame = text.rpartition(":")
    if not path or Path(text).exists() or not (frame in BOX_FORMATS or Path(path).exists()):
        return Path(text), "norm1000"
    if frame not in BOX_FORMATS:
        raise ValueError(f"{text}: unknown subset {frame!r}; known: {', '.join(BOX_FORMATS)}")
    return Path(path), frame


def framed(
    question: Question, task: str, frame: str, size: Size, sees: Callable[[int, int], Size] | None
) -> tuple[Question, Size | None]:
    """The question in ``frame``, and the size that its pixels are measured in where that is not
    the picture's ``size``. ``sees`` says at which size the model sees a picture; without it, at its
    own. ValueError where the gold boxes cannot be rewritten.
    """
    if task not in BOX_TASKS or question.frame not in BOX_FORMATS:
        return question, None
    if frame == "norm1000" and question.frame == frame:
        return question, None
    seen = size if frame == "norm1000" or sees is None else sees(*size)
    problem, solution = in_box_format(
        question.problem, question.solution, question.frame, frame, size=size, to_size=seen
    )
    made = replace(question, problem=problem, solution=solution, frame=frame)
    return made, seen if frame == "pixels" else None
