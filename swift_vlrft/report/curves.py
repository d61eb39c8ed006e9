"""Draw a curve as inline SVG: no library, no script, readable on a phone and in the dark.

curve("reward", [(1, 0.2), (2, 0.4)], std=[(1, 0.1), (2, 0.1)])       "<figure>..."

A pale line is the raw values, the strong one their mean over the latest tenth of the steps; a value
is shown where the mouse is, by the stylesheet alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from swift_vlrft.report.html import render, short, tick

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 360, 196
LEFT, RIGHT, TOP, BOTTOM = 44, 348, 18, 172  # the edges of the plot
MOST_POINTS, MOST_VALUES = 300, 60
LARGEST = 1e100
"""The largest number that is drawn: sums of many such numbers are still floats."""


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
    """Draw a figure; empty if no point can be drawn.

    ``std`` is drawn as a band of that much on either side, or the band is ``low`` to ``high``.
    With ``unit`` the axis is that of a score, 0 to 1.
    """
    rows = sorted(p for p in points if is_drawable(p[0]) and is_drawable(p[1]))
    if not rows:
        return ""
    series = [value for _, value in rows]
    chosen = thinned(len(rows), MOST_POINTS)
    means = {n: trailing_mean(series, n) for n in chosen}
    raw = [rows[n] for n in chosen]
    band = _band(raw, std, low, high, (0.0, 1.0) if unit else (-LARGEST, LARGEST))
    values = [v for _, v in raw] + [v for _, *pair in band for v in pair]
    bottom, top = (0.0, 1.0) if unit else _limits(min(values), max(values))
    first, last = raw[0][0], raw[-1][0]

    def at(step: float, value: float) -> tuple[float, float]:
        across = (step - first) / (last - first) if last > first else 0.5
        up = min(1.0, max(0.0, (value - bottom) / (top - bottom)))
        return round(LEFT + across * (RIGHT - LEFT), 1), round(BOTTOM - up * (BOTTOM - TOP), 1)

    smoothed = tenth(len(rows)) > 1
    hovered = [chosen[n] for n in thinned(len(chosen), MOST_VALUES)]
    texts = [
        f"step {tick(rows[n][0])}: {short(rows[n][1])}" + f", mean {short(means[n])}" * smoothed
        for n in hovered
    ]
    places = [at(*rows[n]) for n in hovered]
    edges = [LEFT, *((a[0] + b[0]) / 2 for a, b in pairwise(places)), RIGHT]
    whole = [value for value in ticks(first, last) if value == int(value)]
    begin, end = ends(series)
    return render(
        "curve.svg",
        title=title,
        note=note,
        begin=begin,
        end=end,
        raw=[at(*point) for point in raw] if smoothed else [],
        line=[at(rows[n][0], means[n]) for n in chosen],
        band=[at(s, v) for s, _, v in band] + [at(s, v) for s, v, _ in reversed(band)],
        ticks=[(at(first, value)[1], value) for value in ticks(bottom, top)],
        steps=[(at(step, 0)[0], step) for step in whole or dict.fromkeys((first, last))],
        values=[
            (round(left, 1), round(right - left, 1), place, text)
            for (left, right), place, text in zip(pairwise(edges), places, texts, strict=True)
        ],
        frame=(LEFT, RIGHT, TOP, BOTTOM),
        size=(WIDTH, HEIGHT),
    )


def is_drawable(value: float) -> bool:
    """Return whether a number is finite and not too large to be drawn."""
    return abs(value) <= LARGEST


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the means of the first and the last tenth of the steps."""
    part = tenth(len(values))
    return fmean(values[:part]), fmean(values[-part:])


def trailing_mean(values: Sequence[float], n: int) -> float:
    """Return the mean of the tenth of the steps that ends with the n-th; the last is ends()[1]."""
    return fmean(values[max(0, n + 1 - tenth(len(values))) : n + 1])


def tenth(count: int) -> int:
    """Return how many steps are a tenth of them; at least one."""
    return max(1, count // 10)


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


def thinned(count: int, most: int) -> list[int]:
    """Return every n-th of ``count`` places and the last, about ``most`` of them."""
    return sorted({*range(0, count, max(1, math.ceil(count / most))), count - 1})


def _limits(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis, always some way apart."""
    room = 0.05 * (high - low)
    if room <= 1e-9 * max(abs(low), abs(high)) or room < 1e-300:  # as good as one value
        room = max(0.5, 1e-3 * abs(low)) if low else 1.0
        return (low - room if low else 0.0), high + room
    return (0.0 if 0 <= low < 0.3 * high else low - room), high + room


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers between two others; none where no float lies between them."""
    rough = (high - low) / count
    if not (math.isfinite(rough) and rough > 1e-300):
        return []
    size: float = 10.0 ** math.floor(math.log10(rough))
    step = next((size * n for n in (1, 2, 2.5, 5) if size * n >= rough * 0.999), size * 10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Numbers far from zero and close together: several n may be one float.
    values = dict.fromkeys(n * step for n in range(first, last + 1))
    return [value for value in values if math.isfinite(value)]
