"""Boxes in well-formed JSON, decoded straight into what is needed of them.

    [{'Position': [254, 303, 291, 365], 'Confidence': 0.9}]

A shortcut of ``box_text.read_boxes`` for the texts that a trained model writes nearly always: one
list of flat objects with known keys and four numbers each, and nothing around it. Everything else
is left to the careful reader there; where both read a text, they read the same.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.box_list import MAX_COORDINATE, BoxList
from swift_vlrft.parsing.labels import normalise
from swift_vlrft.parsing.literals import with_json_quotes

_Number = int | float
_Corners = tuple[_Number, _Number, _Number, _Number]


class _ViRFT(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    Position: _Corners
    Confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Item(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    Position: _Corners | UnsetType = UNSET
    bbox_2d: _Corners | UnsetType = UNSET
    bbox: _Corners | UnsetType = UNSET
    box: _Corners | UnsetType = UNSET
    box_2d: _Corners | UnsetType = UNSET
    Confidence: float | UnsetType = UNSET
    score: float | UnsetType = UNSET
    label: str | UnsetType = UNSET
    category: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


_decode_virft = msgspec.json.Decoder(list[_ViRFT]).decode
_decode = msgspec.json.Decoder(list[_Item]).decode


def read_json_boxes(text: str) -> BoxList | None:
    """The boxes of ``text`` where all of it is one such list, else None."""
    if not (text.startswith("[{") and text.endswith("}]")):
        return None
    text = with_json_quotes(text)
    try:
        virft = _decode_virft(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _read_any_keys(text)
    boxes = _valid([i.Position for i in virft])
    return BoxList(boxes, [i.Confidence for i in virft], [None] * len(boxes))


def _read_any_keys(text: str) -> BoxList | None:
    try:
        items = _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    # UNSET is false
    stated = [i.Position or i.bbox_2d or i.bbox or i.box or _x_first(i.box_2d) for i in items]
    corners = [c for c in stated if c is not UNSET]
    if len(corners) < len(items):
        return None
    confidences = [i.score if i.Confidence is UNSET else i.Confidence for i in items]
    labels = [
        i.label if i.label is not UNSET else i.category if i.category is not UNSET else i.name
        for i in items
    ]
    return BoxList(
        _valid(corners),
        [c if c is not UNSET and 0.0 <= c <= 1.0 else None for c in confidences],
        [None if t is UNSET else normalise(t) or None for t in labels],
    )


def _x_first(corners: _Corners | UnsetType) -> _Corners | UnsetType:
    return UNSET if corners is UNSET else (corners[1], corners[0], corners[3], corners[2])


def _valid(corners: Sequence[Box]) -> list[Box | None]:
    """``box_list.valid_box`` of each, written out: a call would take as long as all the rest."""
    low, high = -MAX_COORDINATE, MAX_COORDINATE
    return [
        c if low < x1 < x2 < high and low < y1 < y2 < high and (x2 - x1) * (y2 - y1) > 0 else None
        for c in corners
        for x1, y1, x2, y2 in (c,)
    ]
