"""Read predictions on disk, in several formats, into one form.

ours            {"id": "7", "completion": "<think>..", "solution": "<answer>..", "task": ...}
swift infer     {"response": "<think>..", "labels": "<answer>..", "messages": [..], "images": [..]}
ms-swift's log  {"completion": ["..", ".."], "solution": ["..", ".."], "prompt": [..]}
Visual-RFT      [{"image_id": 9, "category_id": 18, "bbox": [x, y, w, h], "score": 0.9}, ..]

One object per line, except for Visual-RFT's list, which is COCO's results format: it has no
completions, so only average precision can be computed, with the annotations it was made on.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from swift_vlrft.datasets.image import content_key
from swift_vlrft.files.completions import read_completions
from swift_vlrft.files.jsonl import LineError, begins_with_list, finite, read_json
from swift_vlrft.files.text import InputError
from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.parsing.answers import gold_text, text_of
from swift_vlrft.parsing.turns import earlier_turns
from swift_vlrft.rewards import TASK_NAMES

LONGEST_EXAMPLE = 300  # a path is named whole
MOST_EXAMPLES = 5

Side = Annotated[int, msgspec.Meta(gt=0)]
Length = Annotated[float, msgspec.Meta(gt=0)]
Box = tuple[float, float, Length, Length]


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
    task: str | None = None
    aliases: Any = None
    tolerance: Any = None
    tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
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
    pass_rate: float | None = None
    """The share of the row's answers that are right."""
    # Not on disk:
    place: str = ""
    """Its place in its file."""
    own_id: str | None = None
    """The id that the file gives it."""
    incomplete: bool = False
    """The annotations do not cover every object (a crowd region; LVIS: not exhaustive): the answer
    counts only for average precision, which handles that.
    """

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
    detections: list[dict[str, Any]] | None = None
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
        if "completion" not in entry.row and not isinstance(entry.row.get("response"), str):
            columns = ", ".join(map(str, entry.row))[:300] or "nothing"
            raise EvaluationError(
                f"{entry}: neither 'completion' nor 'response' (found: {columns}); known are the "
                "predictions of `vlrft eval`, the results of `swift infer`, and COCO's list of "
                "image_id, category_id, bbox, score"
            )
        row = _prediction(entry.row, entry.place)
        if row.sample:
            further += row.pass_rate is None
            continue
        if task is not None and row.task not in (None, task):
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


_TYPED = {
    f.encode_name: (f.name, f.type)
    for f in msgspec.structs.fields(Prediction)
    if f.name in ("width", "height", "tokens", "row", "seen", "finish", "box_format")
    or f.name in ("image_hash", "sample", "pass_rate")
}


def _prediction(entry: Mapping[str, Any], place: str) -> Prediction:
    """The prediction in a line; columns that share our name but not our type are ignored."""
    of_swift = "completion" not in entry  # of `swift infer`
    solution = entry.get("solution")
    if solution is None and of_swift:
        solution = entry.get("labels")
    said, images = entry.get("messages"), entry.get("images")
    asked = [m for m in said if isinstance(m, dict)] if isinstance(said, list) else []
    contents = [m.get("content") for m in asked if m.get("role") == "user"]
    prompt = text_of(entry.get("prompt")) or text_of(contents[-1] if contents else "")
    name, path = _image(entry.get("image") or (images[:1] if isinstance(images, list) else None))
    key, image_id = _key(entry.get("id")), _key(entry.get("image_id"))
    category, task = entry.get("category"), entry.get("task")
    typed = {field: _as(kind, entry.get(key)) for key, (field, kind) in _TYPED.items()}
    if key is not None and typed["sample"] is not None:
        key = key.removesuffix(f"/{typed['sample']}")  # the id of the row, without the answer's
    return Prediction(
        id=place if key is None else key,
        completion=text_of(entry.get("completion", entry.get("response"))),
        solution="" if solution is None else gold_text(solution),
        image_id=image_id or name or f"row {place}",
        category=category_of(prompt) if category is None else str(category),
        prompt=prompt,
        task=task if isinstance(task, str) and task in TASK_NAMES else None,
        aliases=entry.get("aliases"),
        tolerance=entry.get("tolerance"),
        turns=earlier_turns(entry.get("turns")) or None,
        image=path,
        place=f"line {place}",
        own_id=key,
        **typed,
    )


def _as(kind: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, UnicodeError):  # of a lone surrogate
        return None


def _key(value: Any) -> str | None:
    """The id as text, None for NaN: pandas writes 3 as 3.0 if another id is missing."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None if value != value else str(value)
    return None if value is None else str(value)


def _image(image: Any) -> tuple[str | None, str | None]:
    """The name of an image, and its path if it has one.

    ms-swift writes "<<<bytes>>>" for bytes, and a Python repr for an image object: neither
    identifies the image.
    """
    if isinstance(image, list):
        image = image[0] if image else None
    if isinstance(image, dict):
        image = image.get("path") or image.get("bytes")
    if not isinstance(image, str) or not image or image.startswith("<"):
        return None, None
    if len(image) < 1000 and not image.startswith("data:"):
        return image, image
    return content_key(image.encode("utf-8", "surrogatepass")), None


# ViRFT's prompt for detection names the category twice.
_CATEGORY = re.compile(r"belonging to the category '(.{1,100}?)' in the image")


def category_of(prompt: str) -> str | None:
    """Return the one category that a ViRFT detection prompt asks for."""
    match = _CATEGORY.search(prompt)
    return match[1] if match else None


def _task_of(rows: list[Prediction], path: Path) -> str:
    tasks = Counter(row.task for row in rows if row.task is not None)
    if len(tasks) == 1 and (task := next(iter(tasks))) in TASK_NAMES:
        return task
    known = ", ".join(TASK_NAMES)
    what = f"holds {next(iter(tasks), None)} rows; known: {known}"
    if not tasks:
        what = f"does not say what its {len(rows)} rows ask for; say it with --task ({known})"
    elif len(tasks) > 1:
        named = ", ".join(f"{n} {name}" for name, n in tasks.most_common())
        what = f"holds rows of several tasks ({named}); say which with --task"
    raise EvaluationError(f"{path} {what}")


def _coco_results(path: Path, task: str | None) -> Predictions:
    content = read_json(path)
    needed = {"image_id", "category_id", "bbox", "score"}
    if content and not any(isinstance(entry, dict) and needed <= entry.keys() for entry in content):
        first = content[0]
        keys = ", ".join(map(str, first)) if isinstance(first, dict) else type(first).__name__
        raise EvaluationError(
            f"{path} is a JSON list of {keys}; a list of detections has image_id, category_id, "
            "bbox and score, and completions stand in JSON Lines, one object per line"
        )
    if task not in (None, "detection"):
        raise EvaluationError(f"{path} is a list of detections; it cannot be scored as {task}")
    problems, rows, seen = Problems(), list[dict[str, Any]](), set[str]()
    for n, entry in enumerate(content):
        if not isinstance(entry, dict):
            problems.add("entries that are no object, left out", f"entry {n}")
            continue
        box, score = _as(Box, entry.get("bbox")), finite(entry.get("score"))
        if box is None or not all(map(math.isfinite, box)):
            problems.add("invalid boxes, left out", f"entry {n}: {entry.get('bbox')}")
        elif score is None:
            problems.add("scores that are no number, left out", f"entry {n}: {entry.get('score')}")
        else:
            ids = {"image_id": entry.get("image_id"), "category_id": entry.get("category_id")}
            rows.append({**ids, "bbox": list(box), "score": score})
            if (key := " ".join(map(str, rows[-1].values()))) in seen:
                problems.add("repeats of a box, which count as in COCO", f"entry {n}")
            seen.add(key)
    notes = [] if rows else ["the list holds no box: every gold box counts as missed"]
    return Predictions("detection", [], problems, rows, notes)
