"""ms-swift's own grounding rows: chat messages, with boxes and names in ``objects``.

    {"messages": [{"role": "user", "content": "<image>Find the <ref-object>."},
                  {"role": "assistant", "content": "<bbox>"}],
     "images": ["9.jpg"],
     "objects": {"ref": ["dog"], "bbox": [[64, 48, 384, 288]], "bbox_type": "real"}}

or ``query`` and ``response`` for ``messages``. Corners are in pixels of the stored image (real, the
default) or in shares (norm1). The solution is the answer with its tags filled in, as by ms-swift's
template (normalize_bbox), or a list of objects where it is tags alone. What that would drop is
refused. Rows with a solution, and runs without a reward of ours, are for ms-swift.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from swift_vlrft.datasets.schema import (
    Context,
    RawExample,
    RecordSchema,
    four_numbers,
    further,
    turns_of,
)
from swift_vlrft.datasets.storage import Record
from swift_vlrft.parsing.answers import read_boxes

REF, BOX = "<ref-object>", "<bbox>"
LISTS = ("ref", "bbox", "image_id")
FRAMES = {"real": "pixels", "norm1": "unit"}
_TAG = re.compile(f"{REF}|{BOX}")


def _matches(columns: set[str]) -> bool:
    turns = "messages" in columns or {"query", "response"} <= columns
    return turns and {"images", "objects"} <= columns and not {"problem", "solution"} & columns


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    if others := [name for name in ("videos", "audios", "tools", "history") if record.get(name)]:
        raise ValueError(f"the row has {others[0]}; one image, a question and its answer are read")
    turns = [{"role": "user", "content": record.get("query")}]
    turns += [{"role": "assistant", "content": record.get("response")}]
    texts = turns_of({"messages": turns} | record, "messages")
    system, question, answer = ((text or "").strip() for text in texts)
    if not (question and answer):
        raise ValueError("a question of user and an answer of assistant are needed")
    names, boxes, frame = _objects(record["objects"])
    if BOX in system + question or answer.count(BOX) != len(boxes):
        raise ValueError(f"of {len(boxes)} bbox, the answer needs each {BOX}, the question none")
    left = {REF: iter(names), BOX: iter(boxes)}
    system, question = _filled(system, left), _filled(question, left)
    if boxes and answer != BOX and not re.sub(rf"{_TAG.pattern}|[\s,;，、]", "", answer):
        solution = _listed(answer, left)
    else:
        solution = _filled(answer, left)
    written, stated = read_boxes(solution), record.get("frame") or context.stored.box_format
    if boxes and (written is None or (REF in answer and None in written.labels)):
        raise ValueError(f"{solution[:60]!r} is no JSON list of boxes, or lacks a label; write one")
    if written and not boxes and not stated:
        raise ValueError(f"nothing states the format of {solution[:80]!r}; put boxes into objects")
    example = further(record, "messages", "query", "response", "images", "objects")
    example |= {"image": record["images"], "problem": question, "solution": solution}
    yield example | {"system": system or None, "frame": stated or (frame if boxes else None)}


def _objects(objects: Any) -> tuple[list[str], list[list[float]], str]:
    """The names, the boxes and their box format."""
    if isinstance(objects, str):
        try:
            objects = json.loads(objects)
        except ValueError as error:
            raise ValueError(f"objects is text, but no JSON ({error})") from None
    objects = {} if objects is None else objects
    lists: list[Any] = [None]
    if isinstance(objects, dict):
        lists = [objects.get(name) or [] for name in LISTS]
    if not all(isinstance(values, list) for values in lists) or any(lists[2]):
        raise ValueError(f"objects is {str(objects)[:60]}; it needs lists ref, bbox, image_id (0)")
    names, boxes, _ = lists
    kind = objects.get("bbox_type") or "real"
    frame = FRAMES["real"] if kind == ["real"] else FRAMES.get(str(kind))  # as ms-swift takes it
    if frame is None:
        raise ValueError(f"bbox_type is {kind!r}; real or norm1 is needed")
    for box in boxes:
        if not four_numbers(box):
            raise ValueError(f"{str(box)[:60]} is not x1, y1, x2, y2 (no point or polygon is read)")
    return names, boxes, frame


def _filled(text: str, left: dict[str, Iterator[Any]]) -> str:
    """The text with what is ``left`` of names and boxes in the place of its tags."""

    def value(tag: re.Match[str]) -> str:
        if (value := next(left[tag[0]], None)) is None:
            raise ValueError(f"the texts hold {REF} more often than objects holds a ref")
        return str(value)

    return _TAG.sub(value, text)


def _listed(answer: str, left: dict[str, Iterator[Any]]) -> str:
    """The objects of an answer that is tags alone: a name is that of the boxes behind it."""
    objects, label = [], {}
    for tag in _TAG.findall(answer):
        if tag == REF:
            label = {"label": _filled(tag, left)}
        else:
            objects.append({"bbox_2d": next(left[tag]), **label})
    return json.dumps(objects, ensure_ascii=False)


SWIFT_OBJECTS_SCHEMA = RecordSchema("swift-objects", _matches, _rows, image="images")
