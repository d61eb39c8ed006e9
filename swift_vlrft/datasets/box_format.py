"""Convert a row's boxes and prompt to another box format: only the numbers, their sentence and,
where the format or the model has its own, the key of a box change.

    in    "... the bounding boxes (between 0 and 1000, integer) ..."
          [{'Position': [254, 303, 291, 365], 'Confidence': 1}]
    out   "... the bounding boxes (in pixels, x from 0 to 644 and y from 0 to 476, integer) ..."
          [{'Position': [164, 144, 187, 174], 'Confidence': 1}]

for an image that Qwen2.5-VL sees as 644 x 476. A prompt that says something of coordinates in other
words than those of prompt_sentences.toml is refused, and so is a solution that cannot be rewritten.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from swift_vlrft.datasets.prompt_sentences import (
    KEYS,
    prompt_in,
    said_of_coordinates,
    sentence,
    without_box_format,
)
from swift_vlrft.datasets.row import POINT_TASKS, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.syntax import parse
from swift_vlrft.families.family import Family
from swift_vlrft.geometry.box_format import (
    BOX_FORMATS,
    NATIVE,
    SUBSETS,
    Y_FIRST_KEY,
    BoxFormat,
    Corners,
    Size,
    box_format,
    rescaled,
)
from swift_vlrft.parsing.answers import answer_span, gold_text, read_boxes
from swift_vlrft.rewards import TASK_NAMES

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d++(?:\.\d++)?|\.\d++)(?:[eE][-+]?\d++)?(?!\w|\.\d)")
_MARK = 1_000_000
"""Placeholder for the first number of a text while the numbers of boxes are located."""
_ANY_KEYED = rf"(?P<quote>[\"'`])(?:{KEYS})(?P=quote)(?=\s*:)"
_Read = tuple[list[Corners], list[float | None], list[str | None]]
"""Boxes, confidences and labels, as ``read_boxes`` gives them."""


class UnknownSentence(ValueError):
    """A prompt says something of coordinates in words that are not in the table."""


class Subset(NamedTuple):
    """What ``--dataset PATH:subset`` asks for: a box format, which may be ``native``, and the rows
    of some tasks; no task means all rows.
    """

    box_format: str = "norm1000"
    tasks: tuple[str, ...] = ()


def subset_of(names: Sequence[str], dataset: str) -> Subset:
    """Read what ``--dataset PATH:NAME/NAME`` asks for; a DataError lists the known names."""
    known = [name for name in names if name not in ("", "default")]
    tasks = tuple(name for name in known if name in TASK_NAMES)
    formats = [name for name in known if name not in TASK_NAMES]
    for name in formats:
        if name not in SUBSETS:
            raise DataError(
                f"{dataset}: unknown subset {name!r}; known box formats: {', '.join(SUBSETS)}; "
                f"known tasks, for their rows alone: {', '.join(TASK_NAMES)}"
            )
    if len(formats) > 1:
        raise DataError(f"{dataset}: {' and '.join(formats)} are box formats; name only one")
    return Subset(formats[0] if formats else "norm1000", tasks)


def split_box_format(text: str) -> tuple[Path, str]:
    """Split ``PATH[:norm1000|pixels|unit|yx1000|native]`` into path and subset. ValueError names an
    unknown subset.
    """
    asked = parse(text)
    subset = "/".join(asked.subsets)
    if subset in SUBSETS:
        return asked.path, subset
    if asked.subsets and asked.path.exists():
        raise DataError(f"{text}: unknown subset {subset!r}; known: {', '.join(SUBSETS)}")
    return Path(text), "norm1000"


def native_format(dataset: str, family: Family) -> tuple[str, str | None]:
    """Return the box format that a family was trained on, and the key of its boxes, if any: the
    meaning of ``DATASET:native``. DataError if it was not trained to write boxes.
    """
    if family.box_format is None:
        raise DataError(
            f"{dataset}:{NATIVE}: {family.name} was not trained to write boxes; name a box format: "
            f"{', '.join(BOX_FORMATS)}"
        )
    return family.box_format, family.box_key


def row_in_box_format(row: Row, frame: str, size: Size, seen: Size, key: str | None = None) -> Row:
    """Return the row with boxes and prompt in ``frame`` ("": its own), boxes under ``key`` if
    given. ``size`` is the stored image's, ``seen`` the size that the model sees. ValueError if they
    cannot be rewritten.
    """
    if not frame:
        return row
    stored_in, system = row.columns.get("frame"), row.columns.get("system") or ""
    changes = frame != stored_in or frame == "pixels" or key is not None
    if system and changes and row.has_boxes:
        plain = " ".join(system.split())
        if said_of_coordinates(system) or without_box_format(system) != plain:
            raise ValueError(
                f"the system turn {system[:80]!r} says how boxes are written, but is not rewritten "
                f"in {frame}; say it in the problem"
            )
    if not row.has_boxes or stored_in is None:
        elsewhere = (frame, key) != ("norm1000", None) and row.columns.get("task") is None
        if elsewhere and read_boxes(gold := gold_text(row.solution)) is not None:
            raise ValueError(
                f"the solution {gold!r} may mean no object or be a class, so the prompt is not "
                f"rewritten in {frame}: state the task in a column task"
            )
        return row
    problem, solution = _rewritten(row, frame, size, seen, key)
    sides = {"width": seen[0], "height": seen[1]} if frame == "pixels" else {}
    columns = row.columns | {"frame": frame} | sides
    return replace(row, problem=problem, solution=solution, columns=columns)


def _rewritten(
    row: Row, frame: str, size: Size, to_size: Size, asked_key: str | None
) -> tuple[str, str]:
    """Prompt and gold solution in another format, or as they are if they are so already. Boxes are
    under the asked key, or that which the order of a format needs.
    """
    problem, solution, points = row.problem, row.solution, row.columns.get("task") in POINT_TASKS
    before, after = box_format(row.columns["frame"]), box_format(frame)
    key = after.key or asked_key
    same = before == after and (before.scale is not None or size == to_size)
    as_it_is = same and before.scale is not None and key == before.key
    if key is None and before.y_first:  # boxes become x-first, under ViRFT's key
        key = "Position"
    if said := said_of_coordinates(problem, points=points):
        if as_it_is or (
            same and (key is None or (key in problem and all_under(key, gold_text(solution))))
        ):
            return problem, solution
        name = after.name if asked_key is None else NATIVE
        leave = "" if name == "norm1000" else f", or leave out `:{name}`"
        raise UnknownSentence(
            f"the prompt says {said!r}, which may be about coordinates but is no known sentence, "
            f"so the row is not converted from {before.name} to {name}: write "
            f"{sentence(before, size)!r} in its place (column `problem`){leave}"
        )
    problem = prompt_in(problem, after, to_size, key, points=points)
    if as_it_is or (same and key is None):
        return problem, solution
    return problem, _converted(solution, before, after, size, to_size, key)


def all_under(key: str, text: str) -> bool:
    """Tell whether every box of a gold solution stands under ``key``."""
    boxes = read_boxes(text)
    return boxes is not None and len(re.findall(rf"[\"']{key}[\"']\s*:", text)) == len(boxes)


def _converted(
    solution: str, before: BoxFormat, after: BoxFormat, size: Size, to_size: Size, key: str | None
) -> str:
    """The solution with other numbers in its boxes, and under another key if it is given. No
    other character changes. Boxes that need a key are written as a list of objects; a label that
    stood in tags is then written as class names are compared.
    """
    gold = gold_text(solution)
    parsed = read_boxes(gold)
    if parsed is None or None in parsed.boxes:
        raise ValueError(f"the solution {gold[:80]!r} cannot be rewritten in another box format")
    if not parsed.boxes:
        return solution
    boxes = [rescaled(box, before, after, size, to_size) for box in parsed.boxes if box is not None]
    wanted = boxes, parsed.confidences, parsed.labels
    renamed = gold if key is None else re.sub(_ANY_KEYED, rf"\g<quote>{key}\g<quote>", gold)
    written = with_numbers(renamed, boxes, after)
    if key is not None and not (_reads(written, wanted) and all_under(key, written)):
        written = _as_objects(wanted, key, after)
    if not _reads(written, wanted):
        raise ValueError(f"the boxes of the solution {gold[:80]!r} cannot be rewritten")
    if not isinstance(solution, str):
        return written
    start, end = answer_span(solution) or (0, len(solution))
    return solution[:start] + solution[start:end].replace(gold, written, 1) + solution[end:]


def written_boxes(text: str) -> list[Corners]:
    """Return the four numbers of each box of ``text`` as they are written, x first.

    Also of boxes that are no corners (x, y, width, height).
    """
    numbers = [float(match[0]) for match in _NUMBER.finditer(text)]
    boxes = (tuple(numbers[mark - _MARK] for mark in marks) for marks in _marks(text))
    return [box for box in boxes if len(box) == 4 and all(map(math.isfinite, box))]


def _marks(text: str) -> list[tuple[int, ...]]:
    """For each box the marks of its numbers. The reader itself tells which numbers are a box's, and
    in which order: each number of the text is replaced by a mark, and the marks that come back in
    boxes are theirs.
    """
    marks = itertools.count(_MARK)
    marked = read_boxes(_NUMBER.sub(lambda _: str(next(marks)), text))
    boxes = [tuple(map(int, box or ())) for box in (marked.boxes if marked is not None else [])]
    known = range(_MARK, next(marks))  # the reader may see another number in mark and text together
    return [box if all(mark in known for mark in box) else () for box in boxes]


def with_numbers(text: str, boxes: Sequence[Corners | None], of: BoxFormat) -> str:
    """``text`` with other numbers in its boxes."""
    numbers: dict[int, float] = {}
    for mark, box in zip(_marks(text), boxes, strict=False):
        numbers.update(zip(mark, box or (), strict=False))
    marks = itertools.count(_MARK)

    def number(match: re.Match[str]) -> str:
        value = numbers.get(next(marks))
        return match[0] if value is None else f"{value:.{of.decimals}f}"

    return _NUMBER.sub(number, text)


def _as_objects(of: _Read, key: str, written_in: BoxFormat) -> str:
    """Boxes as a JSON list of objects with ``key``, with confidences and labels that there are."""
    objects = []
    for (x1, y1, x2, y2), confidence, label in zip(*of, strict=True):
        corners = (y1, x1, y2, x2) if key == Y_FIRST_KEY else (x1, y1, x2, y2)
        numbers = ", ".join(f"{value:.{written_in.decimals}f}" for value in corners)
        further = {"Confidence": confidence, "label": label}
        rest = "".join(f', "{k}": {json.dumps(v)}' for k, v in further.items() if v is not None)
        objects.append(f'{{"{key}": [{numbers}]{rest}}}')
    return f"[{', '.join(objects)}]"


def _reads(text: str, wanted: _Read) -> bool:
    parsed = read_boxes(text)
    return parsed is not None and (parsed.boxes, parsed.confidences, parsed.labels) == wanted
