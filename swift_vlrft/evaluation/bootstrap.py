"""Bootstrap intervals: how much a metric would vary with other images.

    weights = resamples(n_units=500, count=1000, seed=0)      (1000, 500) counts
    interval(ratio_estimates(numerator, denominator, weights))     (0.79, 0.87)

The sampling unit is the image, since its rows are correlated; all metrics of a set, and both sides
of a comparison, use the same draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

COUNT = 1000
LEVEL = 0.95
MOST_NUMBERS = 50_000_000
"""Limit of the table of draws: with more images there are fewer draws."""


def resamples(n_units: int, count: int = COUNT, seed: int = 0) -> Array:
    """``count`` draws of ``n_units`` units with replacement, as counts of each unit."""
    count = max(1, min(count, MOST_NUMBERS // max(n_units, 1)))
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(n_units, np.full(n_units, 1.0 / n_units), size=count)
    weights: Array = drawn.astype(np.float64)
    return weights


def ratio_estimates(numerator: Array, denominator: Array, weights: Array) -> Array:
    """sum(numerator) / sum(denominator) of every draw; NaN where the denominator is 0.

    Both are sums per unit, in the order of the columns of ``weights``.
    """
    top, bottom = weights @ numerator, weights @ denominator
    with np.errstate(invalid="ignore", divide="ignore"):
        estimates: Array = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), np.nan)
    return estimates


def interval(estimates: Array) -> tuple[float, float] | None:
    """The middle 95 % of the draws; None if more than half of them are NaN."""
    usable = estimates[np.isfinite(estimates)]
    if len(usable) < max(2, len(estimates) / 2):
        return None
    low, high = np.quantile(usable, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
