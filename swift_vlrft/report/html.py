"""Fill in the templates of ``templates/``: whatever goes in is escaped, by jinja2, and control
characters and marks that turn the direction of writing are shown as what they are.

    render("rows.html", title="data/shapes", ...)     "<!doctype html>..."

The pages need nothing but themselves: images are written into them, they run no script, and their
content policy lets a browser load nothing else.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_vlrft.datasets import open_image
from swift_vlrft.files.text import visible
from swift_vlrft.files.video import video_facts
from swift_vlrft.geometry.boxes import Box

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("swift_vlrft.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {"short": short, "tick": tick, "cut": cut, "place": place}
    return environment


def render(template: str, **values: Any) -> str:
    """Fill in the template; what no page shows becomes its escape sequence."""
    return _environment().get_template(template).render(values)


def short(value: float | None) -> str:
    """Write a measured number with at most three decimals; "-" for none."""
    if value is None:
        return "-"
    if value == 0 or 0.0005 <= abs(value) < 100_000:
        return f"{value:.{3 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"
    return f"{value:.1e}"


def tick(value: float) -> str:
    """Write a round number, as on an axis: without zeros at its end."""
    return f"{value:.7g}" if value == 0 or 0.001 <= abs(value) < 1e7 else f"{value:.1e}"


def cut(value: Any, longest: int = 300) -> str:
    """Write a value as a short text: texts as they are, bytes by their count, all else as JSON."""
    if isinstance(value, bytes):
        value = f"{len(value)} bytes"
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= longest else text[:longest] + " ..."


class DrawnBox(NamedTuple):
    """A box over an image whose coordinates run to ``size``; ``kind`` is its CSS class."""

    box: Box
    size: tuple[float, float]
    kind: str
    label: str = ""


def drawn_spans(spans: Sequence[Box | None] | None, video: str, kind: str) -> list[DrawnBox]:
    """Return spans of time as boxes over their video's strip of frames, with their seconds."""
    size = video_facts(video)[2], 1.0
    return [DrawnBox(s, size, kind, f"{s[0]:g} to {s[2]:g} s") for s in spans or () if s]


def place(drawn: DrawnBox) -> str:
    """Return a box's place in CSS, in per cent of the image; at most half of it outside."""
    shares = [v / drawn.size[n % 2] for n, v in enumerate(drawn.box)]
    x1, y1, x2, y2 = (100 * min(1.5, max(-0.5, share)) for share in shares)
    return f"left:{x1:.2f}%;top:{y1:.2f}%;width:{x2 - x1:.2f}%;height:{y2 - y1:.2f}%"


def data_url(image: Mapping[str, Any], longest_side: int) -> tuple[str, tuple[int, int]]:
    """Return the image, upright and scaled down, as a URL that holds it, and its true size."""
    opened = open_image(image)
    size = opened.size
    opened.thumbnail((longest_side, longest_side))
    buffer = io.BytesIO()
    kind = "png" if max(size) < 200 else "jpeg"  # a few pixels: JPEG would smear them
    opened.save(buffer, kind, **({} if kind == "png" else {"quality": 85}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}", size
