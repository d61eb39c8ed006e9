"""Bounds are the interval that a number must lie in, as `(0, 1]` or `[1, inf)`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

INTERVAL = re.compile(r"([\[(])([^,]+), ([^,]+)([\])])")


@dataclass(frozen=True, slots=True)
class Bounds:
    """``at_low`` and ``at_high`` say whether the ends belong to the interval."""

    low: float = -math.inf
    high: float = math.inf
    at_low: bool = False
    at_high: bool = False

    @classmethod
    def of(cls, text: str) -> Bounds:
        match = INTERVAL.fullmatch(text)
        if match is None:
            raise ValueError(f"{text}: no interval")
        return cls(float(match[2]), float(match[3]), match[1] == "[", match[4] == "]")

    @classmethod
    def beyond(cls, sign: str, number: float) -> Bounds:
        """Return the values that remain where `value SIGN number` is refused."""
        at = len(sign) == 1
        return cls(low=number, at_low=at) if sign[0] == "<" else cls(high=number, at_high=at)

    def met(self, other: Bounds) -> Bounds:
        """Return the values that lie in both intervals."""
        low = max((self.low, not self.at_low), (other.low, not other.at_low))
        high = min((self.high, self.at_high), (other.high, other.at_high))
        return Bounds(low[0], high[0], not low[1], high[1])

    def __contains__(self, value: float) -> bool:
        above = value > self.low or (self.at_low and value == self.low)
        return above and (value < self.high or (self.at_high and value == self.high))

    def __str__(self) -> str:
        ends = "[" if self.at_low else "(", "]" if self.at_high else ")"
        return f"{ends[0]}{self.low:g}, {self.high:g}{ends[1]}"

    @property
    def said(self) -> str:
        """Write it for a message: `1 or more`, `from 0 to 1`, `above 0 and at most 1`."""
        if self.high == math.inf:
            return f"{self.low:g} or more" if self.at_low else f"above {self.low:g}"
        if self.at_low and self.at_high:
            return f"from {self.low:g} to {self.high:g}"
        low = f"{self.low:g} or more" if self.at_low else f"above {self.low:g}"
        high = f"at most {self.high:g}" if self.at_high else f"below {self.high:g}"
        return high if self.low == -math.inf else f"{low} and {high}"
