"""A curve as inline SVG: no library, no script, readable on a phone and in the dark.

curve("reward", [(1, 0.2), (2, 0.4)], spread=[(1, 0.1), (2, 0.1)])       "<figure>..."
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 26
MOST_POINTS = 300


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
    values = [v for _, v in points] + [v for _, *pair in bands for v in pair]
    bottom, top = (0.0, 1.0) if unit else _limits(min(values), max(values))
    first, last = points[0][0], points[-1][0]

    def x(step: float) -> float:
        share = (step - first) / (last - first) if last > first else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        share = min(1.0, max(0.0, (value - bottom) / (top - bottom)))
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
    if unit:
        rows = [(s, max(0.0, a), min(1.0, b)) for s, a, b in rows]
    return rows if len(rows) > 1 else []


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def thinned(points: Points) -> list[tuple[float, float]]:
    """Of a long run, every n-th point, the last one always."""
    rows = sorted(points)
    every = max(1, math.ceil(len(rows) / MOST_POINTS))
    kept = rows[::every]
    if rows and kept[-1] != rows[-1]:
        kept.append(rows[-1])
    return kept


def _limits(low: float, high: float) -> tuple[float, float]:
    if low == high:
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    room = 0.05 * (high - low)
    return (0.0 if 0 <= low < 0.3 * high else low - room), high + room


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers within the limits."""
    rough = (high - low) / count
    size: float = 10.0 ** math.floor(math.log10(rough))
    step = next(size * n for n in (1, 2, 2.5, 5, 10) if size * n >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    if value == 0 or 0.001 <= abs(value) < 100_000:
        text = f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.1e}"
