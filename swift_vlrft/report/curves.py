"""A curve as inline SVG: no library, no script, readable on a phone and in the dark.

curve("reward", [(1, 0.2), (2, 0.4)], std=[(1, 0.1), (2, 0.1)])       "<figure>..."
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from swift_vlrft.report.html import render, short

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 350, 10, 164  # the edges of the plot
MOST_POINTS = 300
LARGEST = 5e307
"""Drawn as this is what lies beyond: the difference of two such numbers is still a float."""


def curve(
    title: str,
    points: Points,
    *,
    std: Points = (),
    low: Points = (),
    high: Points = (),
    unit: bool = False,
    note: str = "",
) -> str:
    """``std`` is drawn as a band of that much on either side, or the band is ``low`` to ``high``.
    ``unit``: the axis is that of a score, 0 to 1. Empty if no point is finite.
    """
    points = thinned(points)
    if not points:
        return ""
    band = _band(points, std, low, high, (0.0, 1.0) if unit else (-LARGEST, LARGEST))
    values = [_drawable(v) for _, v in points] + [v for _, *pair in band for v in pair]
    bottom, top = (0.0, 1.0) if unit else _limits(min(values), max(values))
    first, last = _drawable(points[0][0]), _drawable(points[-1][0])

    def at(step: float, value: float) -> tuple[float, float]:
        across = (_drawable(step) - first) / (last - first) if last > first else 0.5
        up = min(1.0, max(0.0, (_drawable(value) - bottom) / (top - bottom)))
        return round(LEFT + across * (RIGHT - LEFT), 1), round(BOTTOM - up * (BOTTOM - TOP), 1)

    steps = [(at(last, 0)[0], f"{'' if last > first else 'step '}{short(points[-1][0])}", "end")]
    if last > first:
        steps.insert(0, (LEFT, f"step {short(points[0][0])}", "start"))
    outline = [at(s, v) for s, _, v in band] + [at(s, v) for s, v, _ in reversed(band)]
    return render(
        "curve.svg",
        title=title,
        note=note,
        first=points[0][1],
        last=points[-1][1],
        line=[at(*point) for point in points],
        band=outline,
        ticks=[(at(first, value)[1], value) for value in ticks(bottom, top)],
        steps=steps,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
    )


def _drawable(value: float) -> float:
    return min(LARGEST, max(-LARGEST, value))


def _band(
    points: Points, std: Points, low: Points, high: Points, limits: tuple[float, float]
) -> list[tuple[float, float, float]]:
    """(step, lower, upper) within the limits."""
    if std:
        around = dict(std)
        rows = [(s, v - around[s], v + around[s]) for s, v in points if s in around]
    else:
        lows, highs = dict(low), dict(high)
        rows = [(s, lows[s], highs[s]) for s, _ in points if s in lows and s in highs]
    least, most = limits
    rows = [(s, max(least, a), min(most, b)) for s, a, b in rows if a == a and b == b]
    return rows if len(rows) > 1 else []


def thinned(points: Points) -> list[tuple[float, float]]:
    """The points that can be drawn, by step; of a long run, every n-th, the last one always."""
    rows = sorted(p for p in points if math.isfinite(p[0]) and math.isfinite(p[1]))
    every = max(1, math.ceil(len(rows) / MOST_POINTS))
    kept = rows[::every]
    if rows and kept[-1] != rows[-1]:
        kept.append(rows[-1])
    return kept


def _limits(low: float, high: float) -> tuple[float, float]:
    """What the axis runs from and to, always some way apart."""
    room = 0.05 * (high - low)
    if room <= 1e-9 * max(abs(low), abs(high)) or room < 1e-300:  # as good as one value
        room = max(0.5, 1e-3 * abs(low)) if low else 1.0
        return (low - room if low else 0.0), high + room
    return (0.0 if 0 <= low < 0.3 * high else low - room), high + room


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers within the limits; none where no float lies between them."""
    rough = high / count - low / count
    if not (math.isfinite(rough) and rough > 1e-300):
        return []
    size: float = 10.0 ** math.floor(math.log10(rough))
    step = next((size * n for n in (1, 2, 2.5, 5) if size * n >= rough * 0.999), size * 10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Numbers far from zero and close together: several n may be one float.
    values = dict.fromkeys(n * step for n in range(first, last + 1))
    return [value for value in values if math.isfinite(value)]
