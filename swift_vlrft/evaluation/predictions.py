"""Predictions on disk, in the forms that people have them, as one.

ours            {"id": "7", "completion": "<think>..", "solution": "<answer>..", "task": ...}
swift infer     {"response": "<think>..", "labels": "<answer>..", "messages": [..], "images": [..]}
ms-swift's log  {"completion": ["..", ".."], "solution": ["..", ".."], "prompt": [..]}
Visual-RFT      [{"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "score": 0.9}, ..]

One object per line, but for Visual-RFT's list, which is COCO's form of results: it holds no
completions, so only average precision can be had of it, against the annotations it was made on.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import (
    LineError,
    begins_with_list,
    completion_entries,
    finite,
    read_json,
)
from swift_vlrft.parsing.answers import gold_text, text_of
from swift_vlrft.rewards import TASK_NAMES

EVALUATED = ("detection", "grounding", "classification", "counting")
"""The tasks that ``vlrft eval`` knows."""

LONGEST = 300  # a path is named whole
SHOWN = 5


class EvaluationError(ValueError):
    """Predictions that cannot be scored: the message says what, where, and what to do."""


@dataclass(slots=True)
class Prediction:
    """One answer and what it is an answer to. ``width`` and ``height`` are the picture's, ``seen``
    the size that boxes in pixels are measured in where it is another: what the model saw.
    """

    id: str
    completion: str
    solution: str
    image_id: str = ""
    category: str | None = None
    frame: str | None = None
    width: int | None = None
    height: int | None = None
    prompt: str = ""
    aliases: Any = None
    tokens: int | None = None
    finish: str | None = None
    row: int | None = None
    """The row of the data set, counted from 0: where the report finds the picture."""
    image: str | None = None
    """The picture's file, where it has one."""
    seen: tuple[int, int] | None = None
    incomplete: bool = False
    """The annotations do not say every object (a crowd region; LVIS: not exhaustive): the answer
    counts for average precision, which knows that, and for nothing else.
    """

    place: str = ""
    """Where it stood in its file."""
    stated: bool = True
    """Whether the file gives the id."""
    pictures: tuple[str, ...] = ()
    """What names the picture: path or content, and an id."""

    @property
    def whole(self) -> tuple[float, float] | None:
        """What the numbers of a box run to from the picture's left to its right and from its top
        to its bottom; None where it is not known.
        """
        if self.frame == "norm1000":
            return 1000.0, 1000.0
        if self.frame == "pixels" and self.seen is not None:
            return float(self.seen[0]), float(self.seen[1])
        if self.frame == "pixels" and self.width and self.height:
            return float(self.width), float(self.height)
        return None


@dataclass
class Problems:
    """What was wrong with predictions: counted by kind, the first few of each named."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, what: Any, times: int = 1) -> None:
        self.counts[kind] += times
        named = self.examples.setdefault(kind, [])
        if len(named) < SHOWN and str(what)[:LONGEST] not in named:
            named.append(str(what)[:LONGEST])


@dataclass
class Detections:
    """Boxes without completions, in COCO's form of results: pixels, x, y, width, height."""

    rows: list[dict[str, Any]]


@dataclass
class Predictions:
    """A file of predictions: ``rows``, or ``detections`` where it holds boxes alone."""

    task: str
    rows: list[Prediction]
    form: str
    problems: Problems = field(default_factory=Problems)
    detections: Detections | None = None
    notes: list[str] = field(default_factory=list)
    """What has to be said beside the numbers."""


def read_predictions(path: Path, task: str | None = None) -> Predictions:
    """Read a file of any of the forms. EvaluationError names the line that cannot be used."""
    if task is not None and task not in EVALUATED:
        raise EvaluationError(f"unknown task {task!r}; known: {', '.join(EVALUATED)}")
    try:
        return _read(path, task)
    except LineError as error:
        raise EvaluationError(str(error)) from None
    except OSError as error:
        raise EvaluationError(f"{path} cannot be read ({error})") from error


def _read(path: Path, task: str | None) -> Predictions:
    if begins_with_list(path):
        return _coco_results(path, task)
    problems = Problems()
    rows: list[Prediction] = []
    seen: set[str] = set()
    stated: Counter[str] = Counter()
    form = "vlrft"
    notes: list[str] = []
    for place, entry in completion_entries(path, notes):
        form = _form_of(entry, path, place)
        row, row_task = _prediction(entry, place, form)
        if task is not None and row_task is not None and row_task != task:
            problems.add("rows of another task, left out", f"line {place} is {row_task}")
            continue
        if row.id in seen:
            problems.add("duplicates, of which the first counts", f"line {place}: {row.id}")
            continue
        seen.add(row.id)
        if row_task is not None:
            stated[row_task] += 1
        rows.append(row)
    if not rows:
        if problems.counts:
            raise EvaluationError(f"{path} holds no prediction of task {task}")
        raise EvaluationError(f"{path} holds no predictions")
    chosen = task or _task_of(stated, rows, path)
    return Predictions(chosen, rows, form, problems, notes=notes)


def _form_of(entry: Mapping[str, Any], path: Path, place: str) -> str:
    if "completion" in entry:
        return "vlrft"
    if "response" in entry:
        return "swift infer"
    raise EvaluationError(
        f"{path}, line {place}: neither 'completion' nor 'response' (found: "
        f"{', '.join(map(str, entry)) or 'nothing'}); known are the predictions of `vlrft eval`, "
        "the results of `swift infer`, and COCO's list of image_id, category_id, bbox, score"
    )


def _prediction(entry: Mapping[str, Any], place: str, form: str) -> tuple[Prediction, str | None]:
    solution = entry.get("solution")
    if solution is None and form == "swift infer":
        solution = entry.get("labels")
    prompt = text_of(entry.get("prompt")) or _question(entry.get("messages"))
    image = entry.get("image")
    if image is None and isinstance(images := entry.get("images"), list) and images:
        image = images[0]
    picture, path = _picture(image)
    task = entry.get("task")
    category = entry.get("category")
    key, image_id = _key(entry.get("id")), _key(entry.get("image_id"))
    return (
        Prediction(
            id=_order(place, form) if key is None else key,
            completion=text_of(entry.get("completion", entry.get("response"))),
            solution="" if solution is None else gold_text(solution),
            image_id=image_id or picture or f"row {place}",
            category=str(category) if category is not None else category_of(prompt),
            frame=_text(entry.get("frame")),
            width=_side(entry.get("width")),
            height=_side(entry.get("height")),
            prompt=prompt,
            aliases=entry.get("aliases"),
            tokens=_side(entry.get("tokens")),
            finish=_text(entry.get("finish")),
            row=entry["row"] if type(entry.get("row")) is int else None,
            image=path,
            seen=_seen(entry.get("seen")),
            place=f"line {place}",
            stated=key is not None,
            pictures=tuple(name for name in (picture, image_id) if name is not None),
        ),
        task if isinstance(task, str) and task in TASK_NAMES else None,
    )


def _key(value: Any) -> str | None:
    """An id as text; pandas writes whole numbers as 3.0 where one of them is missing, and NaN."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None if value != value else str(value)
    return None if value is None else str(value)


def _order(place: str, form: str) -> str:
    """Rows of `swift infer` are in the order of the data set, whose rows count from 0."""
    return str(int(place) - 1) if form == "swift infer" and place.isdigit() else place


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _side(value: Any) -> int | None:
    """A number above zero, or None."""
    number = None if isinstance(value, str) else finite(value)
    return int(number) or None if number is not None and number >= 0 else None


def _seen(value: Any) -> tuple[int, int] | None:
    sides = [_side(side) for side in value] if isinstance(value, list) else []
    return (sides[0], sides[1]) if len(sides) == 2 and sides[0] and sides[1] else None


def _picture(image: Any) -> tuple[str | None, str | None]:
    """What tells one picture from another where no id is given, and its path where it has one.

    ms-swift writes "<<<bytes>>>" for bytes, and how Python shows an object for a picture: both say
    nothing of which it is.
    """
    if isinstance(image, dict):
        image = image.get("path") or image.get("bytes")
    if not isinstance(image, str) or not image or image.startswith("<"):
        return None, None
    if len(image) < 1000 and not image.startswith("data:"):
        return image, image
    try:
        content = base64.b64decode(image.partition("base64,")[2] or image)
    except ValueError:
        content = image.encode("utf-8", "surrogatepass")
    return content_key(content), None


def content_key(content: bytes) -> str:
    """A picture by what its file holds."""
    return hashlib.sha256(content).hexdigest()[:16]


def _question(messages: Any) -> str:
    if not isinstance(messages, list):
        return ""
    asked = [m for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    return text_of(asked[-1].get("content")) if asked else ""


# ViRFT's prompt for detection names the category twice.
_CATEGORY = re.compile(r"belonging to the category '(.{1,100}?)' in the image")


def category_of(prompt: str) -> str | None:
    """The one category that a ViRFT detection prompt asks for."""
    found = _CATEGORY.search(prompt)
    return found[1] if found else None


def _task_of(stated: Counter[str], rows: list[Prediction], path: Path) -> str:
    if len(stated) > 1:
        raise EvaluationError(
            f"{path} holds rows of several tasks "
            f"({', '.join(f'{n} {name}' for name, n in stated.most_common())}); "
            "say which with --task"
        )
    if stated:
        (task,) = stated
        if task in EVALUATED:
            return task
        raise EvaluationError(f"{path} holds {task} rows; known: {', '.join(EVALUATED)}")
    raise EvaluationError(
        f"{path} does not say what its {len(rows)} rows ask for; say it with --task "
        f"({', '.join(EVALUATED)})"
    )


def _coco_results(path: Path, task: str | None) -> Predictions:
    content = read_json(path)
    if content and not any(
        isinstance(entry, dict) and {"image_id", "category_id", "bbox", "score"} <= entry.keys()
        for entry in content
    ):
        first = content[0]
        keys = ", ".join(map(str, first)) if isinstance(first, dict) else type(first).__name__
        raise EvaluationError(
            f"{path} is a JSON list of {keys}; a list of detections has image_id, category_id, "
            "bbox and score, and completions stand one JSON object per line, in no list"
        )
    if task not in (None, "detection"):
        raise EvaluationError(f"{path} is a list of detections; it cannot be scored as {task}")
    problems = Problems()
    rows: list[dict[str, Any]] = []
    seen: set[tuple[str, ...]] = set()
    for n, entry in enumerate(content):
        if not isinstance(entry, dict):
            problems.add("entries that are no object, left out", f"entry {n}")
        elif (box := _four_numbers(entry.get("bbox"))) is None:
            problems.add("invalid boxes, left out", f"entry {n}: {entry.get('bbox')}")
        elif (score := finite(entry.get("score"))) is None:
            problems.add("scores that are no number, left out", f"entry {n}: {entry.get('score')}")
        else:
            kept = {"image_id": entry.get("image_id"), "category_id": entry.get("category_id")}
            rows.append({**kept, "bbox": box, "score": score})
            key = tuple(map(str, rows[-1].values()))
            if key in seen:
                problems.add("repeats of a box, which count as in COCO", f"entry {n}")
            seen.add(key)
    return Predictions("detection", [], "COCO results", problems, Detections(rows))


def _four_numbers(box: Any) -> list[float] | None:
    if not isinstance(box, list) or len(box) != 4:
        return None
    numbers = [finite(value) for value in box]
    if any(n is None for n in numbers):
        return None
    x, y, width, height = (float(n) for n in numbers if n is not None)
    return [x, y, width, height] if width > 0 and height > 0 else None
