"""Compute as bash, `expr` and `seq` do: in whole numbers, with division towards 0."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}
NUMBER = re.compile(r"-?\d{1,9}")
MOST_NUMBERS = 1_000


def expression(words: Sequence[str]) -> str | None:
    """Return what `expr A / B / C` prints; all operators must be of one rank."""
    numbers, operators = words[::2], words[1::2]
    one_rank = {*operators} <= {"+", "-"} or {*operators} <= {"*", "/", "%"}
    if len(words) % 2 == 0 or not one_rank or not all(map(NUMBER.fullmatch, numbers)):
        return None
    total = int(numbers[0])
    for operator, number in zip(operators, map(int, numbers[1:]), strict=True):
        if operator in "/%" and not number:
            return None
        total = ARITHMETIC[operator](total, number)
    return str(total)


def sequence(words: Sequence[str]) -> str | None:
    """Return what `seq [-sTEXT] [FIRST [STEP]] LAST` prints."""
    between = "\n"
    if words and words[0].startswith("-s"):
        between, words = words[0][2:], words[1:]
    if not 1 <= len(words) <= 3 or not all(map(NUMBER.fullmatch, words)):
        return None
    first, step = words[0] if words[1:] else "1", words[1] if words[2:] else "1"
    if not int(step):
        return None
    numbers = range(int(first), int(words[-1]) + (1 if int(step) > 0 else -1), int(step))
    return between.join(map(str, numbers)) if len(numbers) < MOST_NUMBERS else None
