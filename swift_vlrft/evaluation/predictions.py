"""Read predictions on disk, in one of three forms.

ours            {"id": "7", "completion": "<think>..", "solution": "<answer>..", "task": ...}
ms-swift's log  {"completion": ["..", ".."], "solution": ["..", ".."], "prompt": [..]}
COCO's results  [{"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "score": 0.9}, ..]

One object per line, except for COCO's list: it has no completions, so only average precision can be
computed, with the annotations it was made on. Of ours, only the completion is needed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from swift_vlrft.files.completions import Completion, read_completions
from swift_vlrft.files.jsonl import LineError, begins_with_list, read_json
from swift_vlrft.files.text import InputError
from swift_vlrft.geometry.box_format import BOX_FORMATS, FORMATS
from swift_vlrft.parsing.answers import gold_text, text_of
from swift_vlrft.parsing.turns import earlier_turns
from swift_vlrft.rewards import TASK_NAMES

LONGEST_EXAMPLE = 300  # a path is named whole
MOST_EXAMPLES = 5

Side = Annotated[int, Meta(gt=0)]


class Detection(TypedDict):
    """Holds an entry of COCO's results; ``bbox`` is x, y, width, height in pixels."""

    image_id: int | str
    category_id: int | str
    bbox: Annotated[list[float], Meta(min_length=4, max_length=4)]
    score: float


class EvaluationError(InputError):
    """Predictions cannot be scored: the message gives reason, place and remedy."""


class Prediction(msgspec.Struct, omit_defaults=True):
    """Holds one answer and its query: a line of ``predictions.jsonl``.

    ``width`` and ``height`` are the image's; ``seen`` is the size that boxes in pixels refer to,
    if it differs: that of the resized image.
    """

    id: str
    completion: str
    solution: str = ""
    image_id: str = ""
    category: str | None = None
    box_format: str | None = msgspec.field(default=None, name="frame")
    width: Side | None = None
    height: Side | None = None
    prompt: str = ""
    system: str | None = None
    """The system prompt that the model was given, the row's or its template's."""
    task: str | None = None
    aliases: Any = None
    tolerance: Any = None
    tokens: Annotated[int, Meta(ge=0)] | None = None
    finish: str | None = None
    row: int | None = None
    """The row of the data set, counted from 0, from which the report takes the image."""
    image: str | None = None
    """The image's file, if it has one."""
    seen: tuple[Side, Side] | None = None
    image_hash: str | None = None
    """Of the image's file as it is stored."""
    sample: int | None = None
    """The number of the answer, of several to the row."""
    turns: list[Any] | None = None
    """Those before the completion (parsing/turns.py)."""
    # Not on disk:
    place: str = ""
    """Its place in its file."""
    own_id: str | None = None
    """The id that the file gives it."""

    @property
    def box_range(self) -> tuple[float, float] | None:
        """Return the largest x and y that a box may have; None if they are not known."""
        known, size = FORMATS.get(self.box_format or ""), self.seen or self.size
        if known is None or (known.scale is None and size is None):
            return None
        width, height = known.edges(size or (0, 0))
        return float(width), float(height)

    @property
    def size(self) -> tuple[int, int] | None:
        return (self.width, self.height) if self.width and self.height else None


class Problems(msgspec.Struct):
    """Counts problems of predictions by kind, and names the first few of each."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    examples: dict[str, list[str]] = {}

    def add(self, kind: str, what: Any, times: int = 1) -> None:
        self.counts[kind] += times
        named, text = self.examples.setdefault(kind, []), str(what)[:LONGEST_EXAMPLE]
        if len(named) < MOST_EXAMPLES and text not in named:
            named.append(text)

    def joined(self, *others: Problems) -> Problems:
        """Return a copy with the problems of ``others`` appended."""
        copy = Problems()
        for problems in (self, *others):
            copy.counts += problems.counts
            for kind, named in problems.examples.items():
                copy.examples.setdefault(kind, []).extend(named)
        return copy

    def __str__(self) -> str:
        return "; ".join(
            f"{n} {kind}: {', '.join(self.examples[kind])}" for kind, n in self.counts.items()
        )


@dataclass(frozen=True)
class Predictions:
    """Holds a file's ``rows``, or ``detections`` if it has boxes alone, and ``notes`` on them."""

    task: str
    rows: list[Prediction]
    problems: Problems = field(default_factory=Problems)
    detections: list[Detection] | None = None
    notes: list[str] = field(default_factory=list)


def read_predictions(path: Path, task: str | None = None) -> Predictions:
    """Read a file, or the predictions of a run's folder. EvaluationError names an unusable line."""
    if task not in (None, *TASK_NAMES):
        raise EvaluationError(f"unknown task {task!r}; known: {', '.join(TASK_NAMES)}")
    path = file_of_run(path)
    try:
        return _coco_results(path, task) if begins_with_list(path) else _completions(path, task)
    except LineError as error:
        raise EvaluationError(str(error)) from None
    except OSError as error:
        raise EvaluationError(f"{path} cannot be read ({error})") from error


def file_of_run(path: Path) -> Path:
    """Return the predictions' file of a run's folder, or the file itself; boxes alone are JSON."""
    names = [path / name for name in ("predictions.json", "predictions.jsonl")]
    return next(filter(Path.exists, names), names[-1]) if path.is_dir() else path


def _completions(path: Path, task: str | None) -> Predictions:
    problems = Problems()
    notes: list[str] = []
    rows: dict[str, Prediction] = {}
    further = 0
    for entry in read_completions(path, notes):
        row = _prediction(entry)
        if row.sample:
            further += 1
        elif task is not None and row.task not in (None, task):
            problems.add("rows of another task, left out", f"{row.place} is {row.task}")
        else:  # an id may repeat: that of an image does
            name = f"{row.id}, {row.place}" if row.id in rows else row.id
            rows[name] = msgspec.structs.replace(row, id=name)
    if not rows:
        what = f"no prediction of task {task}" if problems.counts else "no predictions"
        raise EvaluationError(f"{path} holds {what}")
    if further:
        notes.append(f"{further} further answers to rows that have several: only the first counts")
    predictions = list(rows.values())
    return Predictions(task or _task_of(predictions, path), predictions, problems, notes=notes)


def _prediction(entry: Completion) -> Prediction:
    """The prediction in a line; EvaluationError if a field is not of our type."""
    row, place = entry.row, entry.place
    if "completion" not in row:
        columns = ", ".join(map(str, row))[:300] or "nothing"
        raise EvaluationError(
            f"{entry}: no 'completion' (found: {columns}); known are the predictions of `vlrft "
            "eval`, lines of 'id' and 'completion', and COCO's list of image_id, category_id, "
            "bbox, score: write 'completion', and the gold, if any, as 'solution'"
        )
    named = {name: row.get(name) for name in ("id", "image_id", "category")}
    for name, value in named.items():
        if not isinstance(value, str | int | None):
            raise EvaluationError(
                f"{entry}: {name} is {str(value)[:80]!r}; write a text or a whole number"
            )
    given = {name: str(value) for name, value in named.items() if value is not None}
    if (frame := row.get("frame")) not in (None, *BOX_FORMATS):
        known = ", ".join(BOX_FORMATS)
        raise EvaluationError(f"{entry}: unknown box format {str(frame)[:80]!r}; known: {known}")
    key, prompt = given.get("id"), text_of(row.get("prompt"))
    if key is not None and row.get("sample") is not None:
        key = key.removesuffix(f"/{row['sample']}")  # the id of the row, without the answer's
    fields = {
        "image_id": row.get("image") or f"row {place}",
        "category": category_of(prompt),
        **given,
        "id": place if key is None else key,
        "completion": text_of(row["completion"]),
        "solution": "" if row.get("solution") is None else gold_text(row["solution"]),
        "prompt": prompt,
        "turns": earlier_turns(row.get("turns")) or None,
        "place": f"line {place}",
        "own_id": key,
    }
    try:
        return msgspec.convert(row | fields, Prediction, strict=False)
    except (msgspec.ValidationError, UnicodeError) as error:  # of a lone surrogate
        raise EvaluationError(f"{entry}: {error}; correct the field, or leave it out") from None


# ViRFT's prompt for detection names the category twice.
_CATEGORY = re.compile(r"belonging to the category '(.{1,100}?)' in the image")


def category_of(prompt: str) -> str | None:
    """Return the one category that a ViRFT detection prompt asks for."""
    match = _CATEGORY.search(prompt)
    return match[1] if match else None


def _task_of(rows: list[Prediction], path: Path) -> str:
    tasks = Counter(row.task for row in rows if row.task is not None)
    known = ", ".join(TASK_NAMES)
    if not tasks:
        what = f"does not say what its {len(rows)} rows ask for; say it with --task ({known})"
    elif len(tasks) > 1:
        named = ", ".join(f"{n} {name[:80]}" for name, n in tasks.most_common(9))
        what = f"holds rows of several tasks ({named}); say which with --task"
    elif (task := next(iter(tasks))) in TASK_NAMES:
        return task
    else:
        what = f"holds {task[:80]!r} rows; known: {known}"
    raise EvaluationError(f"{path} {what}")


def _coco_results(path: Path, task: str | None) -> Predictions:
    if task not in (None, "detection"):
        raise EvaluationError(f"{path} is a list of detections; it cannot be scored as {task}")
    try:
        entries = msgspec.convert(read_json(path), list[Detection])
    except (msgspec.ValidationError, UnicodeError) as error:
        raise EvaluationError(
            f"{path} is a JSON list, but not of COCO's results ({error}): each entry has image_id, "
            "category_id, bbox, score; completions stand in JSON Lines, one object per line"
        ) from None
    problems, valid = Problems(), list[Detection]()
    for n, entry in enumerate(entries):
        box, score = entry["bbox"], entry["score"]
        if not all(map(math.isfinite, (*box, score))) or min(box[2:]) <= 0:
            problems.add("invalid boxes or scores, left out", f"entry {n}: {box}, {score}")
        else:
            valid.append(entry)
    notes = [] if valid else ["the list holds no box: every gold box counts as missed"]
    return Predictions("detection", [], problems, valid, notes)
