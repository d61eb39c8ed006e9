"""A query in the box format that the model was trained in, as ``--dataset PATH:pixels`` trains it.

    row          "... (between 0 and 1000, integer) ..."                 norm1000
    rewritten    "... (in pixels, x from 0 to 644 and y from 0 to 476, integer) ..."

Gold goes with it, so an answer is scored by the numbers that the prompt asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from swift_vlrft.datasets.box_format import in_box_format
from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.evaluation.queries import Query
from swift_vlrft.families.coordinates import BOX_FORMATS, Size


def split_box_format(text: str) -> tuple[Path, str]:
    """Path and box format of ``PATH[:norm1000|pixels]``; ValueError names what is unknown."""
    path, _, box_format = text.rpartition(":")
    if not path or Path(text).exists() or not (box_format in BOX_FORMATS or Path(path).exists()):
        return Path(text), "norm1000"
    if box_format not in BOX_FORMATS:
        raise ValueError(f"{text}: unknown subset {box_format!r}; known: {', '.join(BOX_FORMATS)}")
    return Path(path), box_format


def rewritten(
    query: Query, task: str, box_format: str, size: Size, sees: Callable[[int, int], Size] | None
) -> tuple[Query, Size | None]:
    """The query in ``box_format``, and the size that its pixels are measured in where that is not
    the image's ``size``. ``sees`` says at which size the model sees an image; without it, at its
    own. ValueError where the gold boxes cannot be rewritten.
    """
    if task not in BOX_TASKS or query.box_format not in BOX_FORMATS:
        return query, None
    if box_format == query.box_format == "norm1000":
        return query, None
    seen = size if box_format == "norm1000" or sees is None else sees(*size)
    problem, solution = in_box_format(
        query.problem, query.solution, query.box_format, box_format, size=size, to_size=seen
    )
    query = replace(query, problem=problem, solution=solution, box_format=box_format)
    return query, seen if box_format == "pixels" else None
