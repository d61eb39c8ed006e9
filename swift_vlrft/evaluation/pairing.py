"""Pair answers with rows by one key each, and tell whether questions and golds are the same.

    pair(lines, ["x1", "x0", "y"], rows, ["x0", "x1"])       [1, 0, None]

A key that two rows or two lines have is refused, and so is a line of another image than its row.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from swift_vlrft.datasets.prompt_sentences import without_box_format
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction
from swift_vlrft.files.jsonl import finite
from swift_vlrft.parsing.answers import read_boxes
from swift_vlrft.parsing.labels import normalise

ROUNDING = 2.0
"""Pixels, or thousandths, by which a box may move when it is converted to another box format."""
IMAGE_TAGS = re.compile(
    r"</?(?:\w+_)?(?:image|img|image_soft_token|IMG_CONTEXT)>|<\|[^|<>]{1,40}\|>"
)


def question_key(prompt: str) -> str:
    """Return a prompt without image tags, box-format sentence and runs of blanks."""
    return " ".join(IMAGE_TAGS.sub(" ", without_box_format(prompt)).split())


def gold_key(text: str) -> Hashable:
    """Return a key for the meaning of a gold text, however it is written; None if it is empty."""
    if not text.strip():
        return None
    boxes = read_boxes(text)
    if boxes is not None and None not in boxes.boxes:
        pairs = zip(boxes.labels, boxes.boxes, strict=True)
        return tuple(sorted((normalise(label or ""), *(box or ())) for label, box in pairs))
    number = finite(text)
    if number is not None:
        return number
    return normalise(text.replace('"', "'")) or " ".join(text.split())


def same_gold(first_text: str, second_text: str) -> bool:
    """Return whether two golds are the same, apart from rounding of boxes."""
    if gold_key(first_text) == gold_key(second_text):
        return True
    a, b = read_boxes(first_text), read_boxes(second_text)
    largest = max((max(box) for box in (b.boxes if b is not None else ()) if box), default=0.0)
    near = ROUNDING if largest > 1.0 else ROUNDING / 1000  # normalized to 0-1
    return (
        a is not None
        and b is not None
        and len(a.boxes) == len(b.boxes)
        and all(
            first and second and all(abs(x - y) <= near for x, y in zip(first, second, strict=True))
            for first, second in zip(a.boxes, b.boxes, strict=True)
        )
    )


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
