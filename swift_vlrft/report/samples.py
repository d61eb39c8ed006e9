"""One row of an evaluation as a card: picture, gold and predicted boxes, what was answered and why
it scored what it did.

Boxes are elements laid over the picture: gold solid white, before dashed red, after solid green.
All text of model and data set is escaped.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import DataError, open_image
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.diagnostics.reasons import Reason
from swift_vlrft.evaluation.predictions import Prediction, Problems
from swift_vlrft.evaluation.questions import Settings, is_annotation_file, questions
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import BoxList, boxes_or_refusal, read

LONGEST_SIDE = 480
LONGEST_TEXT = 4000
MOST_BOXES = 200


@dataclass(frozen=True)
class Side:
    """One model's answer to the row: ``name`` is before, after, or answer."""

    name: str
    row: Prediction
    reason: Reason


def card(task: str, sides: Sequence[Side], picture: str | None) -> str:
    row = sides[0].row
    drawn = ""
    if picture is not None:
        drawn = f'<div class="picture"><img src="{picture}" alt="">'
        if task in BOX_TASKS:
            drawn += boxes(row, boxes_or_refusal(row.solution), "gold")
            for side in sides:
                drawn += boxes(side.row, read(side.row.completion).boxes, side.name)
        drawn += "</div>"
    change = " &rarr; ".join(
        "-" if s.reason.score is None else f"{s.reason.score:.2f}" for s in sides
    )
    answers = "".join(
        f'<h4 class="{side.name}">{side.name} <b>{_score(side.reason)}</b></h4>'
        f"<p>{escape(side.reason.text)}</p><pre>{_text(side.row.completion)}</pre>"
        for side in sides
    )
    named = f" &middot; {escape(row.category)}" if row.category else ""
    return (
        f'<article>{drawn}<div class="text"><h3>{change}</h3>'
        f'<p class="facts">row {escape(row.id)}{named}</p>{answers}'
        f"<details><summary>prompt and solution</summary><pre>{_text(row.prompt)}</pre>"
        f"<pre>{_text(row.solution)}</pre></details></div></article>"
    )


def _score(reason: Reason) -> str:
    return "not scored" if reason.score is None else f"{reason.score:.2f}"


def _text(text: str) -> str:
    return escape(text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + " ...")


def boxes(row: Prediction, found: BoxList | None, kind: str) -> str:
    """The boxes in shares of the picture; nothing for a row whose frame is not known."""
    size = row.whole
    if size is None:
        return ""
    whole = [box for box in (found or BoxList()).boxes if box is not None]
    return "".join(
        f'<div class="box {kind}" style="{_place(box, size)}"></div>' for box in whole[:MOST_BOXES]
    )


def _place(box: Box, size: tuple[float, float]) -> str:
    x1, x2 = (min(1.5, max(-0.5, value / size[0])) for value in (box[0], box[2]))
    y1, y2 = (min(1.5, max(-0.5, value / size[1])) for value in (box[1], box[3]))
    return (
        f"left:{100 * x1:.2f}%;top:{100 * y1:.2f}%;"
        f"width:{100 * (x2 - x1):.2f}%;height:{100 * (y2 - y1):.2f}%"
    )


def pictures(
    wanted: Iterable[Prediction], settings: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Data URLs by row id, and why there is none: from the picture's file, or from the row of the
    data set that the predictions were made on.
    """
    made: dict[str, str] = {}
    problems: list[str] = []
    by_row: dict[int, list[str]] = {}
    for row in wanted:
        if row.image is not None and Path(row.image).is_file():
            _add(made, problems, [row.id], {"bytes": None, "path": row.image})
        elif row.row is not None:
            by_row.setdefault(row.row, []).append(row.id)
    if by_row and settings:
        try:
            for number, image in _images_of(Settings.from_dict(settings), set(by_row)):
                _add(made, problems, by_row[number], image)
        except (ValueError, KeyError, TypeError, OSError) as error:
            problems.append(f"the data set's pictures: {error}")
    return made, problems


def _images_of(settings: Settings, numbers: set[int]) -> Iterable[tuple[int, dict[str, Any]]]:
    if is_annotation_file(settings.dataset):
        return
    last = max(numbers)
    for question in questions(settings, Problems()):
        if question.row in numbers:
            yield question.row, question.image
        if question.row is not None and question.row >= last:
            return


def _add(
    made: dict[str, str], problems: list[str], ids: Sequence[str], image: Mapping[str, Any]
) -> None:
    try:
        url = data_url(image)
    except DataError as error:
        problems.append(str(error))
        return
    made.update(dict.fromkeys(ids, url))


def data_url(image: Mapping[str, Any]) -> str:
    """The picture, upright, scaled down, written out."""
    picture = open_image(image)
    small = max(picture.size) < 200
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    buffer = io.BytesIO()
    kind = "png" if small else "jpeg"  # a few pixels: JPEG would smear them
    picture.save(buffer, kind, **({} if small else {"quality": 80}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
