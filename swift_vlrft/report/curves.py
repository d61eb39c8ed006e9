"""A curve as inline SVG: no library, no script, readable on a phone and in the dark.

curve("reward", [(1, 0.2), (2, 0.4)], spread=[(1, 0.1), (2, 0.1)])       "<figure>..."
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from html import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 26
MOST_POINTS = 300
LARGEST = sys.float_info.max


def curve(
    title: str,
    points: Points,
    *,
    spread: Points = (),
    low: Points = (),
    high: Points = (),
    unit: bool = False,
    note: str = "",
) -> str:
    """``spread`` is drawn as a band of that much on either side, or the band is ``low`` to
    ``high``. ``unit``: the axis is that of a score, 0 to 1.
    """
    points = thinned(points)
    if not points:
        return ""
    bands = _band(points, spread, low, high, unit)
    # Halves: the difference of two numbers of a log may be more than a float holds.
    values = [v for _, v in points] + [v for _, *pair in bands for v in pair]
    bottom, top = (0.0, 1.0) if unit else _limits(min(values), max(values))
    first, last = points[0][0], points[-1][0]

    length = last / 2 - first / 2

    def x(step: float) -> float:
        share = (step / 2 - first / 2) / length if length > 0 else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        share = min(1.0, max(0.0, (value / 2 - bottom / 2) / (top / 2 - bottom / 2)))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = []
    for value in ticks(bottom, top):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}"/><text x="{LEFT - 6}" y="{y(value) + 4:.1f}" '
            f'text-anchor="end">{short(value)}</text>'
        )
    for step, anchor in ((first, "start"), (last, "end")):
        if anchor == "end" or last > first:
            parts.append(
                f'<text x="{x(step):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">'
                f"{'step ' if anchor == 'start' else ''}{short(step)}</text>"
            )
    if bands:
        outline = [(x(s), y(h)) for s, _, h in bands] + [(x(s), y(v)) for s, v, _ in bands[::-1]]
        parts.append(f'<polygon class="band" points="{_path(outline)}"/>')
    if len(points) == 1:
        parts.append(f'<circle class="dot" cx="{x(first):.1f}" cy="{y(points[0][1]):.1f}" r="3"/>')
    else:
        parts.append(
            f'<polyline class="line" points="{_path([(x(s), y(v)) for s, v in points])}"/>'
        )
    said = f"{title}: {short(points[0][1])} to {short(points[-1][1])}"
    remark = f"<small>{escape(note)}</small>" if note else ""
    return (
        f"<figure><figcaption>{escape(title)} <b>{short(points[0][1])} &rarr; "
        f"{short(points[-1][1])}</b>{remark}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(said, quote=True)}">'
        f"{''.join(parts)}</svg></figure>"
    )


def _band(
    points: Points, spread: Points, low: Points, high: Points, unit: bool
) -> list[tuple[float, float, float]]:
    if spread:
        around = dict(spread)
        rows = [(s, v - around[s], v + around[s]) for s, v in points if s in around]
    else:
        lows, highs = dict(low), dict(high)
        rows = [(s, lows[s], highs[s]) for s, _ in points if s in lows and s in highs]
    least, most = (0.0, 1.0) if unit else (-LARGEST, LARGEST)
    rows = [(s, max(least, a), min(most, b)) for s, a, b in rows if a == a and b == b]
    return rows if len(rows) > 1 else []


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def thinned(points: Points) -> list[tuple[float, float]]:
    """The points that can be drawn, by step; of a long run, every n-th, the last one always."""
    rows = sorted(p for p in points if math.isfinite(p[0]) and math.isfinite(p[1]))
    every = max(1, math.ceil(len(rows) / MOST_POINTS))
    kept = rows[::every]
    if rows and kept[-1] != rows[-1]:
        kept.append(rows[-1])
    return kept


def _limits(low: float, high: float) -> tuple[float, float]:
    """What the axis runs from and to: always some way apart, and never beyond a float."""
    room = 0.05 * high - 0.05 * low
    if room <= 1e-9 * max(abs(low), abs(high)) or room < 1e-300:  # as good as one value
        room = max(0.5, 1e-3 * abs(low)) if low else 1.0
        return (0.0 if low == 0 else max(-LARGEST, low - room)), min(LARGEST, high + room)
    bottom = 0.0 if 0 <= low < 0.3 * high else max(-LARGEST, low - room)
    return bottom, min(LARGEST, high + room)


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers within the limits; none where no float lies between them."""
    rough = high / count - low / count
    if not (math.isfinite(rough) and rough > 1e-300):
        return []
    size: float = 10.0 ** math.floor(math.log10(rough))
    step = next((size * n for n in (1, 2, 2.5, 5) if size * n >= rough * 0.999), size * 10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Numbers far from zero and close together: several n may be one float.
    made = dict.fromkeys(n * step for n in range(first, last + 1))
    return [value for value in made if math.isfinite(value)]


def short(value: float) -> str:
    if value == 0 or 0.001 <= abs(value) < 100_000:
        text = f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.1e}"
