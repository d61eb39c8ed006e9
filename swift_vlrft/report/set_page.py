"""Show rows of a data set on one HTML page: image with gold boxes, prompt and solution.

page_of([Row(...), ...], "data/shapes")    "<!doctype html>..."
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from swift_vlrft.datasets.image import ImageSize, size_problem
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.parsing.spans import read_spans
from swift_vlrft.report.html import DrawnBox, data_url, drawn_spans, render

LONGEST_SIDE = 640
COLOURS = 8


def page_of(rows: Sequence[Row | BadRow], title: str, of: int | None = None) -> str:
    """Return the page of some rows, of ``of`` rows of the set."""
    shown = f"{len(rows)} rows" if of is None else f"{len(rows)} of {of} rows"
    return render("rows.html", title=title, shown=shown, rows=[_shown(row) for row in rows])


def sample(rows: Iterable[Row | BadRow], count: int, seed: int) -> tuple[list[Row | BadRow], int]:
    """Draw ``count`` random rows in order, and count all; no more are held in memory."""
    rng = random.Random(seed)
    chosen: list[tuple[int, Row | BadRow]] = []
    number = -1
    for number, row in enumerate(rows):
        if len(chosen) < count:
            chosen.append((number, row))
        elif (slot := rng.randrange(number + 1)) < count:
            chosen[slot] = (number, row)
    return [row for _, row in sorted(chosen, key=lambda pair: pair[0])], number + 1


def _shown(row: Row | BadRow) -> dict[str, Any]:
    """The template's values of a row."""
    shown: dict[str, Any] = {"place": str(row.place), "facts": [], "remarks": [], "problem": None}
    shown |= {"url": "", "boxes": [], "empty": ""}
    if isinstance(row, BadRow):
        return shown | {"remarks": [row.problem]}
    columns = {name: value for name, value in row.columns.items() if value is not None}
    frame = columns.pop("frame", None)
    shown["facts"] = [fact for fact in (columns.pop("task", None), frame) if fact]
    shown |= {"problem": row.problem, "solution": row.solution, "columns": columns.items()}
    try:
        shown["url"], size = data_url(row.image, LONGEST_SIDE)
    except DataError as error:
        return shown | {"remarks": [f"no image: {error}"]}
    shown["facts"].append(f"{size[0]} x {size[1]}")
    if row.image.get("video"):
        spans = read_spans(gold_text(row.solution))
        shown["boxes"] = drawn_spans(spans, str(row.image["path"]), "gold")
    if row.has_boxes:
        _add_boxes(shown, row, FORMATS.get(frame or "", FORMATS["norm1000"]).edges(size))
        if problem := size_problem(row.image, ImageSize(*size, plain=True), row.annotated_size):
            shown["remarks"].append(problem)
    return shown


def _add_boxes(shown: dict[str, Any], row: Row, size: tuple[int, int]) -> None:
    """Add the row's boxes, a colour for each label, and remarks on odd ones."""
    golds, remarks = read_boxes(gold_text(row.solution)), shown["remarks"]
    if golds is None:
        remarks.append("the solution does not read as boxes")
        return
    shown["empty"] = "" if len(golds) else "No Objects"
    labels = list(dict.fromkeys(golds.labels))
    for number, (box, label) in enumerate(zip(golds.boxes, golds.labels, strict=True), 1):
        if box is None:
            remarks.append(f"box {number} is invalid: not four numbers, inverted or without area")
            continue
        if min(box) < 0 or box[2] > size[0] or box[3] > size[1]:
            remarks.append(f"box {number} reaches outside {size[0]} x {size[1]}")
        name = str(label or row.columns.get("category") or number)
        shown["boxes"].append(DrawnBox(box, size, f"c{labels.index(label) % COLOURS}", name))
