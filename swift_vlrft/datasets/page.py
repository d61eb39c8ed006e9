"""Rows as one HTML page: the picture with its gold boxes drawn, prompt and solution beside it.

    page_of([Row(...), ...], "data/shapes")    "<!doctype html>..."

The page needs nothing but itself: the pictures are scaled down and written into it, it runs no
script, and its content policy lets a browser load nothing else. All text of the set is escaped.
"""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from swift_vlrft.datasets.image import ImageInfo, open_image, size_problem
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import boxes_or_refusal, gold_text

LONGEST_SIDE = 640
# Readable with white text on it (contrast of at least 4.5 : 1), and apart for most colour-blind.
COLOURS = ("#c2185b", "#1565c0", "#2e7d32", "#6a1b9a", "#b23c00", "#00695c", "#5d4037", "#37474f")


def page_of(rows: Sequence[Row | BadRow], title: str, of: int | None = None) -> str:
    """The page; ``of`` is how many rows the set has."""
    shown = f"{len(rows)} rows" if of is None else f"{len(rows)} of {of} rows"
    cards = "\n".join(_card(row) for row in rows)
    return _PAGE.format(title=escape(title), shown=shown, cards=cards)


def sample(rows: Iterable[Row | BadRow], count: int, seed: int) -> tuple[list[Row | BadRow], int]:
    """``count`` rows by chance, in their order, and how many there are; one pass, and no more
    than ``count`` rows in memory.
    """
    rng = random.Random(seed)
    kept: list[tuple[int, Row | BadRow]] = []
    number = -1
    for number, row in enumerate(rows):
        if len(kept) < count:
            kept.append((number, row))
        elif (place := rng.randrange(number + 1)) < count:
            kept[place] = (number, row)
    return [row for _, row in sorted(kept, key=lambda pair: pair[0])], number + 1


def _card(row: Row | BadRow) -> str:
    if isinstance(row, BadRow):
        return _CARD.format(
            drawn="",
            place=escape(str(row.place)),
            facts="",
            remarks=f'<p class="remark">{escape(row.problem)}</p>',
            problem="",
            solution="",
            others="",
        )
    task, frame = row.columns.get("task"), row.columns.get("frame")
    drawn, facts, remarks = "", [task, frame], []
    try:
        source, size = _picture(row)
    except DataError as error:
        remarks.append(f"no picture: {error}")
    else:
        drawn = f'<img src="{source}" alt="">'
        facts.append(f"{size[0]} x {size[1]}")
        if row.has_boxes:
            overlay, found = _boxes(
                gold_text(row.solution), frame, size, row.columns.get("category")
            )
            drawn += overlay
            remarks += found
            if problem := size_problem(row.image, ImageInfo(*size, plain=True), row.drawn):
                remarks.append(problem)
    others = {k: v for k, v in row.columns.items() if k not in ("task", "frame") and v is not None}
    return _CARD.format(
        drawn=drawn,
        place=escape(str(row.place)),
        facts=escape(" · ".join(str(fact) for fact in facts if fact)),
        remarks="".join(f'<p class="remark">{escape(remark)}</p>' for remark in remarks),
        problem=escape(_text(row.problem)),
        solution=escape(_text(row.solution)),
        others="".join(
            f"<dt>{escape(str(name))}</dt><dd>{escape(_short(value))}</dd>"
            for name, value in others.items()
        ),
    )


def _picture(row: Row) -> tuple[str, tuple[int, int]]:
    """A data URL of the picture as the model sees it (RGB, upright), and its true size."""
    picture = open_image(row.image)
    size = picture.size
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    buffer = io.BytesIO()
    kind = "png" if max(size) < 200 else "jpeg"  # a few pixels: JPEG would smear them
    picture.save(buffer, kind, **({"quality": 85} if kind == "jpeg" else {}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}", size


def _boxes(
    text: str, frame: str | None, size: tuple[int, int], category: Any
) -> tuple[str, list[str]]:
    """The boxes as elements laid over the picture, and what is odd about them; a box without a
    label bears the row's category, or else its number.
    """
    found = boxes_or_refusal(text)
    if found is None:
        return "", ["the solution does not read as boxes"]
    if not len(found):
        return '<span class="none">No Objects</span>', []
    width, height = size if frame == "pixels" else (1000, 1000)
    drawn, remarks = [], []
    labels = list(dict.fromkeys(found.labels))
    for number, (box, label) in enumerate(zip(found.boxes, found.labels, strict=True), 1):
        if box is None:
            remarks.append(f"box {number} is invalid: not four numbers, inverted or without area")
            continue
        if box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height:
            remarks.append(f"box {number} reaches outside the frame of {width} x {height}")
        colour = COLOURS[labels.index(label) % len(COLOURS)]
        name = escape(str(label or category or number))
        drawn.append(
            f'<div class="box" style="{_place(box, width, height)};--c:{colour}">'
            f"<span>{name}</span></div>"
        )
    return "".join(drawn), remarks


def _place(box: Box, width: int, height: int) -> str:
    x1, y1, x2, y2 = box
    sides = {
        "left": x1 / width,
        "top": y1 / height,
        "width": (x2 - x1) / width,
        "height": (y2 - y1) / height,
    }
    return ";".join(f"{name}:{100 * value:.3f}%" for name, value in sides.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _short(value)


def _short(value: Any, longest: int = 300) -> str:
    text = f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
    return text if len(text) <= longest else text[:longest] + " ..."


_CARD = """<article>
<div class="picture">{drawn}</div>
<div class="text">
<p class="facts">{place}<br>{facts}</p>
{remarks}<h2>prompt</h2><pre>{problem}</pre>
<h2>solution</h2><pre>{solution}</pre>
<dl>{others}</dl>
</div>
</article>"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0 auto; padding: 1rem; max-width: 70rem; font: 16px/1.45 system-ui, sans-serif; }}
h1 {{ font-size: 1.3rem; overflow-wrap: anywhere; }}
h2 {{ font-size: .85rem; margin: .8rem 0 .2rem; opacity: .7; }}
article {{ display: flex; flex-wrap: wrap; gap: 1rem; padding: 1rem 0;
  border-top: 1px solid #8886; align-items: flex-start; }}
.picture {{ position: relative; flex: 0 1 26rem; overflow: hidden; }}
.picture img {{ display: block; width: 100%; image-rendering: auto; }}
.text {{ flex: 1 1 20rem; min-width: 0; }}
.box {{ position: absolute; box-sizing: border-box; border: 2px solid var(--c);
  outline: 1px solid #fffa; }}
.box span, .none {{ position: absolute; left: -2px; top: -2px; padding: 0 .35em;
  font-size: .75rem; color: #fff; background: var(--c, #37474f); white-space: nowrap; }}
.none {{ left: 0; top: 0; }}
pre {{ margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; }}
.facts {{ margin: 0; font-size: .85rem; opacity: .8; overflow-wrap: anywhere; }}
.remark {{ margin: .4rem 0; padding: .2rem .5rem; background: #c62828; color: #fff; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem; font-size: .85rem; }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{shown}</p>
{cards}
</body>
</html>
"""
