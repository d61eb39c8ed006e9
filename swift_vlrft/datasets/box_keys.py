"""The keys under which a prompt asks for boxes or points, and the order of their coordinates.

with_key("... as [x1, y1, x2, y2]", "bbox_2d")      '... as {"bbox_2d": [x1, y1, x2, y2]}'
with_key("... {'Position': [x1, y1, x2, y2]}", "box_2d")    "... {'box_2d': [y1, x1, y2, x2]}"
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from swift_vlrft.geometry.box_format import Y_FIRST_KEY
from swift_vlrft.parsing.boxes import LISTS

DEFAULT_KEY = "Position"
"""ViRFT's key, where boxes that were under a y-first one become x-first."""
KEYS = r"(?P<quote>[\"'`])(?:Position|bbox_2d|box_2d|bbox|box(?=(?P=quote)\s*:))(?P=quote)"
"""A key of a box, in quotes; 'box' may be a category."""
_KEY = re.compile(rf"{KEYS}|\b(?:bbox|box)_2d\b")
EXAMPLE = re.compile(rf"{KEYS}\s*+:\s*+\[[-+.,\s\d]*+\]")
_STEP = r"\s*+(?:[\])]\s*+)?,\s*+(?:[\[(]\s*+)?"
_AXES = (("x", "left", "right"), ("y", "top", "bottom"))
_X, _Y = (rf"(?:{axis}\w{{0,6}}|{low}|{high})" for axis, low, high in _AXES)
_TEMPLATE = re.compile(  # [x1, y1, x2, y2], (xmin,ymin),(xmax,ymax), [[y1, x1], [y2, x2]]
    rf"(?:(?P<mark>[\"'`])(?!{'|'.join(LISTS)})(?P<key>\w+)(?P=mark)\s*:\s*(?=[\[(]))?"
    rf"(?P<open>[\[(]\s*)?\b(?:(?P<x>{_X}{_STEP}{_Y}{_STEP}{_X}{_STEP}{_Y})"
    rf"|(?P<y>{_Y}{_STEP}{_X}{_STEP}{_Y}{_STEP}{_X}))\b(?P<close>\s*[\])])?"
)
_SIDES = r"\bxywh\b|\by\w*\s*,\s*w(?:idth)?\s*,\s*h(?:eight)?\b"
_ORDER_LEFT = {
    True: re.compile(
        rf"{_SIDES}|\bxyxy\b|\(\s*x\s*,\s*y\s*\)|\bx[\s-]+first\b|\bleft\W+top\b", re.IGNORECASE
    ),
    False: re.compile(
        rf"{_SIDES}|\byxyx\b|\(\s*y\s*,\s*x\s*\)|\by[\s-]+first\b"
        r"|\btop\W+left\W+(?:bottom|right)\b",
        re.IGNORECASE,
    ),
}
_TAGS_LEFT = re.compile(r"<box>|<\|box_start\|>|<\|begin_of_box\|>")
WRITE = "\nWrite each box as "


@dataclass(frozen=True)
class _Asked:
    """How a prompt asks for boxes or points: keys, coordinates without one, a sentence of ours."""

    key: re.Pattern[str]
    template: re.Pattern[str]
    names: tuple[str, ...]
    tags: re.Pattern[str]
    sentence: str


_BOXES = _Asked(_KEY, _TEMPLATE, ("x1", "y1", "x2", "y2"), _TAGS_LEFT, WRITE)
POINTS = _Asked(
    re.compile(r"(?P<quote>[\"'`])(?:point_2d|coordinate|point(?=(?P=quote)\s*:))(?P=quote)"),
    re.compile(r"(?P<open>[\[(]\s*)(?:(?P<x>x\s*,\s*y)|(?P<y>y\s*,\s*x))(?P<close>\s*[\])])"),
    ("x", "y"),
    re.compile(r"<points?\b"),
    "\nWrite each point as ",
)
_POINT_KEYS = {Y_FIRST_KEY: "point"}
"""What stands for a key of boxes where points are asked for; else ``point_2d``."""

# Characters that no text holds, for the sides of the image and for our 0, which is not replaced
WIDTH, HEIGHT, ZERO = "\ufdd0", "\ufdd1", "\ufdd2"
_WORDS_BEFORE = re.compile(r"(?:\S*\s){0,2}\S*\Z")


def with_key(problem: str, key: str, *, points: bool = False) -> str:
    """The prompt asking for boxes under ``key``, or for ``points`` under the key for points that
    goes with it, in its order: keys and coordinates that it names are replaced, a list without a
    key is wrapped, else a sentence is added. ValueError if it still asks for another order, or for
    tags around boxes.
    """
    y_first = key == Y_FIRST_KEY
    of, key = (POINTS, _POINT_KEYS.get(key, "point_2d")) if points else (_BOXES, key)
    named = of.key.search(problem) is not None
    text = of.key.sub(lambda m: f"{m['quote'] or ''}{key}{m['quote'] or ''}", problem)
    ordered = 0

    def written(found: re.Match[str]) -> str:
        nonlocal ordered
        ordered += 1
        names = re.findall(r"\w+", found["x"] or found["y"])
        mark, said = (found.groupdict().get(group) for group in ("mark", "key"))
        if bool(found["y"]) != y_first:
            names = [names[n ^ 1] for n in range(len(names))]
        elif said == key or (named and not said):
            return found[0]
        if mark:  # under the key, or one under which nothing is read
            return f"{mark}{key}{mark}: [{', '.join(names)}]"
        return f"[{', '.join(names)}]" if named else f'{{"{key}": [{", ".join(names)}]}}'

    text = of.template.sub(written, text)
    order = [of.names[n ^ y_first] for n in range(len(of.names))]
    asked = f'{{"{key}": [{", ".join(order)}]}}'
    refuse(_ORDER_LEFT[y_first].search(text), asked)
    refuse(of.tags.search(text), asked)
    if ordered or (named and not y_first):
        return text
    return f"{text}{of.sentence}{asked}."


def refuse(left: re.Match[str] | None, box_format: str, other: str = "") -> None:
    """ValueError naming what is left of another box format, if anything is."""
    if left is not None:
        near = _WORDS_BEFORE.findall(left.string[: left.start()][-40:])[0] + left[0]
        phrase = near.translate({ord(WIDTH): "...", ord(HEIGHT): "...", ord(ZERO): "0"})
        remedy = f"say it as {other}, which is rewritten, or " if other else ""
        raise ValueError(
            f"the prompt says {phrase!r}, and its boxes are to be in {box_format}; {remedy}leave "
            "it out"
        )
