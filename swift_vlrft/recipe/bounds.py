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

    def __contains__(self, value: float) -> bool:
        above = value > self.low or (self.at_low and value == self.low)
        return above and (value < self.high or (self.at_high and value == self.high))

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
