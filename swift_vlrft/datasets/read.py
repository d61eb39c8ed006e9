"""Every row of a set, whatever it is and however it lies on disk.

    for row in read_rows(Path("data/my_set"), keep_going=True):
        ...     Row(place, image, problem, solution, columns) or BadRow(place, problem)

Images are handed over unopened: bytes as they were stored, or the absolute path of the file.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.coco_json import coco_drafts
from swift_vlrft.datasets.forms import Form, find_form, why_unknown
from swift_vlrft.datasets.image import ImageInfo, image_info, image_path
from swift_vlrft.datasets.records import Record
from swift_vlrft.datasets.row import BOX_TASKS, BadRow, Drawn, Row, RowLocation
from swift_vlrft.datasets.schema import (
    Context,
    RawExample,
    RecordSchema,
    class_name,
    drawn_on,
    task_of,
)
from swift_vlrft.datasets.schemas import SCHEMAS, is_for_swift, schema_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import listed
from swift_vlrft.parsing.answers import boxes_or_refusal, gold_text, normalise

SWIFT_COLUMNS = ("messages", "conversations", "conversation", "query", "response", "instruction")
"""Columns by which ms-swift's own loader knows its forms."""
PEEKED = 200
"""Records of a stream that are looked at before the first one is handed on."""


def read_rows(
    path: str | os.PathLike[str] | Form,
    *,
    split: str = "train",
    root: str | os.PathLike[str] | None = None,
    keep_going: bool = False,
    rename: Mapping[str, str] | None = None,
    task: str | None = None,
    frame: str | None = None,
) -> Iterator[Row | BadRow]:
    """The rows of a set in order, one at a time.

    ``root`` is the folder that relative image paths start from, and that none may leave (default:
    ms-swift's ROOT_IMAGE_DIR, else the set's own folder). ``rename`` maps its columns to ours,
    ``task`` and ``frame`` hold where a row's own columns state none. DataError for a set that
    cannot be used at all, and for a row or file that cannot be read; with ``keep_going`` that is a
    BadRow.
    """
    opened = open_set(path, split=split, keep_going=keep_going, rename=rename)
    for found in rows_of(opened, root=root, rename=rename, task=task, frame=frame):
        if isinstance(found, BadRow) and not keep_going:
            text = str(found.place)
            raise DataError(found.problem if text in found.problem else f"{text}: {found.problem}")
        yield found


def open_set(
    path: str | os.PathLike[str] | Form,
    *,
    split: str = "train",
    keep_going: bool = False,
    rename: Mapping[str, str] | None = None,
) -> Form:
    """The form of a set whose columns make rows; DataError names those that are missing. One that
    was found already is not looked for again.
    """
    if isinstance(path, Form):
        form: Form | None = path
        path = path.path
    else:
        path = Path(path)
        form = find_form(path, split, keep_going=keep_going)
    if form is None:
        raise DataError(why_unknown(path))
    if form.kind == "json" and not form.columns and not form.broken:
        first = next((f for f in form.records() if isinstance(f, BadRow)), None)
        empty = f"{listed(form.files, Path())} ha{'s' if len(form.files) == 1 else 've'} no rows"
        raise DataError(f"{first.place}: {first.problem}" if first else empty)
    columns = renamed_columns(form, rename)
    if form.kind != "coco" and (form.files or form.columns) and schema_of(set(columns)) is None:
        missing = [name for name in ("image", "problem", "solution") if name not in columns]
        raise DataError(
            f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"it has {', '.join(columns) or 'none'}. "
            f'Rename yours with --columns \'{{"NAME": "{missing[0]}"}}\''
            f"{_of_swift(columns, missing)}"
        )
    return form


def _of_swift(columns: list[str], missing: list[str]) -> str:
    """What else may be meant, where columns are missing: one that ms-swift's own loader knows."""
    known = [name for name in SWIFT_COLUMNS if name in columns]
    if not known or (len(missing) < 2 and not is_for_swift(columns)):
        return ""
    return (
        f", or leave it as it is: by its column {known[0]} it is in a form of ms-swift's own, "
        "which training reads without us and which cannot be checked here"
    )


def renamed_columns(form: Form, rename: Mapping[str, str] | None) -> list[str]:
    return [(rename or {}).get(name, name) for name in form.columns]


def schema_of_form(form: Form, rename: Mapping[str, str] | None = None) -> RecordSchema:
    """The schema of an opened set that is no annotation file of COCO."""
    return schema_of(set(renamed_columns(form, rename))) or SCHEMAS[0]


def rows_of(
    form: Form,
    *,
    root: str | os.PathLike[str] | None = None,
    rename: Mapping[str, str] | None = None,
    task: str | None = None,
    frame: str | None = None,
    without_images: bool = False,
) -> Iterator[Row | BadRow]:
    """``read_rows`` of a set that is open already; ``without_images`` leaves stored images unread
    (they are then {"bytes": None, "path": None}).
    """
    base = image_root(root)
    form.left_out.clear()
    if form.kind == "coco":
        for number, (draft, size, folder) in enumerate(coco_drafts(form, base)):
            yield _row(
                RowLocation(form.path, number), draft, form, folder, Said(task, frame, drawn=size)
            )
        return
    schema = schema_of_form(form, rename)
    columns = None
    sized = {"width", "height"} <= set(renamed_columns(form, rename))
    without_images = without_images and (schema.single or sized)
    if without_images:
        original = {(rename or {}).get(name, name): name for name in form.columns}
        columns = [c for name, c in original.items() if name != "image" or form.kind == "json"]
    records = form.records(columns)
    first = list(islice(records, PEEKED)) if form.kind == "stream" else []
    said = Said(task, frame, _BoxSet(form, first, rename) if schema.name == "virft" else None)
    # Pictures of a stream are let go when their rows were handed on.
    light = [f if isinstance(f, BadRow) else (f[0], {**f[1], "image": None}) for f in first]
    labels = {(rename or {}).get(name, name): names for name, names in form.labels.items()}
    context = Context(
        form, lambda value: _head(value, form, base), task, first=light, labels=labels
    )
    records = chain(first, records)
    del first
    for found in records:
        if isinstance(found, BadRow):
            yield found
            continue
        place, record = found
        context.place = place
        if rename:
            record = {rename.get(name, name): value for name, value in record.items()}
        if without_images:
            record.setdefault("image", {"bytes": None, "path": None})
        try:
            _state(record, labels)
            drawn = drawn_on(record, in_pixels=not schema.single)
            for draft in schema.rows(record, context):
                found_so = replace(said, stated=record.get("task"), drawn=drawn)
                yield _row(place, draft, form, base, found_so)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            text = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
            yield BadRow(place, text.removeprefix(f"{place}: "))


class _BoxSet:
    """Whether any row without a task holds boxes: then "None" means no object, else it is a class.

    Found out when it is first asked. Of a stream the ``first`` records tell; where all of them are
    refusals, boxes are to come.
    """

    def __init__(
        self,
        form: Form,
        first: Sequence[tuple[RowLocation, Record] | BadRow],
        rename: Mapping[str, str] | None,
    ) -> None:
        self.form, self.known = form, None if form.kind != "stream" else False
        self.names = {
            (rename or {}).get(name, name): name
            for name in form.columns
            if (rename or {}).get(name, name) in ("solution", "task")
        }
        if form.kind == "stream":
            self.known = self._look(first)

    def __bool__(self) -> bool:
        if self.known is None:
            self.known = self._look(self.form.records(list(self.names.values())))
        return self.known

    def _look(self, records: Iterable[tuple[RowLocation, Record] | BadRow]) -> bool:
        refusals = others = 0
        for found in records:
            if isinstance(found, BadRow) or found[1].get(self.names.get("task", "")):
                continue
            text = gold_text(found[1].get(self.names["solution"]))
            boxes = boxes_or_refusal(text)
            if boxes is not None and (
                any(box is not None for box in boxes.boxes) or not (boxes or normalise(text))
            ):
                return True  # a box, or [], which no class is called
            refusals += boxes is not None
            others += boxes is None
        return self.form.kind == "stream" and refusals > 0 and not others


STATED = frozenset(("problem", "solution", "task", "frame"))
"""Columns of which a row is made, besides its picture."""


def _state(record: Record, labels: Mapping[str, list[str]]) -> None:
    """Put the names of classes for their numbers, and nothing where a task or frame is missing:
    pandas writes that as NaN or as a blank.
    """
    for name in record.keys() & labels.keys():
        value, names = record[name], labels[name]
        if name not in STATED:
            record[name] = _named(value, names)
        elif isinstance(value, list):
            record[name] = [class_name(one, names, name) for one in value]
        elif value is not None:
            record[name] = class_name(value, names, name)
    for name in ("task", "frame"):
        value = record.get(name)
        if value != value or (isinstance(value, str) and not value.strip()):
            record[name] = None


def _named(value: Any, names: list[str]) -> Any:
    """A further column's value with names for numbers; ``datasets`` writes -1 for no class at all.
    Of an object it is not known which number is a class: coco_parquet.py knows of its own.
    """
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    if not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None


@dataclass(frozen=True)
class Said:
    """What is known of a row besides its own columns: ``task`` and ``frame`` by the caller,
    ``stated`` the task that its record holds, ``drawn`` the size of its picture that it states.
    """

    task: str | None = None
    frame: str | None = None
    box_set: _BoxSet | None = None
    stated: Any = None
    drawn: Drawn | None = None


def _row(
    place: RowLocation, draft: RawExample, form: Form, root: Path | None, said: Said
) -> Row | BadRow:
    known = dict(draft)
    image, problem, solution = (known.pop(key, None) for key in ("image", "problem", "solution"))
    task = said.stated or said.task or known.get("task") or None
    guess = None
    frame = known.get("frame") or said.frame
    if said.stated or said.task:
        boxed = task in BOX_TASKS
    elif task:
        boxed, guess = task in BOX_TASKS, task
    else:
        boxes = boxes_or_refusal(gold_text(solution))
        if said.box_set is None:
            guess = task_of(solution)
        else:
            guess = "detection" if boxes or said.box_set else "classification"
        boxed = bool(boxes) or (boxes is not None and guess == "detection")
        frame = frame if boxes is not None else None
    known["task"], known["frame"] = task, frame or ("norm1000" if boxed else None)
    try:
        made = image_of(image, form.folder, root)
    except ValueError as error:
        return BadRow(place, str(error))
    drawn = said.drawn
    if drawn is not None and known["frame"] == "pixels":
        drawn = replace(drawn, exact=True)
    return Row(place, made, problem, solution, known, drawn, guess)  # type: ignore[arg-type]  # text_problem judges


def image_root(root: str | os.PathLike[str] | None) -> Path | None:
    """The folder that images lie below: as given, else ms-swift's own variable."""
    given = root if root is not None else os.environ.get("ROOT_IMAGE_DIR") or None
    return None if given is None else Path(os.path.abspath(given))


def image_of(value: Any, folder: Path, root: Path | None) -> dict[str, Any]:
    """An image column's value, in any of its forms, as {"bytes", "path"}; ValueError says what is
    wrong with it.
    """
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"the row has {len(value)} images; rows of one image are supported")
        value = value[0]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(value), "path": None}
    if isinstance(value, str):
        if value.startswith("data:"):
            return {"bytes": _of_data_url(value), "path": None}
        value = {"bytes": None, "path": value}
    if not isinstance(value, dict) or not {"bytes", "path"} & value.keys():
        raise ValueError(f"the image is {str(value)[:80]!r}; bytes, or a path, is needed")
    content, path = value.get("bytes"), value.get("path")
    if content is None and path:
        path = str(image_path(str(path), folder, root))
    return {"bytes": content, "path": path}


def _of_data_url(text: str) -> bytes:
    """The bytes of ``data:image/png;base64,iVBORw0...``, which ms-swift takes for an image, too."""
    kind, comma, content = text.partition(";base64,")
    try:
        if not comma:
            raise ValueError("no ;base64, in it")
        return base64.b64decode(content, validate=True)
    except ValueError as error:
        raise ValueError(f"the image {kind[:60]}... is no base64 text ({error})") from error


def _head(value: Any, form: Form, root: Path | None) -> ImageInfo:
    return image_info(image_of(value, form.folder, root))


__all__ = ["Record", "image_of", "open_set", "read_rows", "rows_of"]
