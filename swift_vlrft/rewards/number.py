"""Score numbers that are read or measured, with decimals, a unit, or a tolerance."""

import math
from typing import Any

from swift_vlrft.parsing.answers import Answer, plain
from swift_vlrft.parsing.short_answers import decimal
from swift_vlrft.rewards.contract import Stated, Task, reward
from swift_vlrft.rewards.counting import NO_NUMBER

EQUAL = 1e-9
"""Relative difference of numbers that are equal but for rounding."""


def read_tolerance(value: Any) -> float | None:
    """Return the tolerance of a row, 0 where it states none; None if it is no number from 0 up."""
    value = plain(value)
    if value is None or value == "":
        return 0.0
    try:
        tolerance = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return tolerance if 0.0 <= tolerance < math.inf else None


def _problem(columns: Any) -> str | None:
    value = columns.get("tolerance")
    tolerance = read_tolerance(value)
    if tolerance is not None and tolerance <= 1:
        return None
    what = "no number from 0 up" if tolerance is None else "over 1, so that 0 would be right, too"
    return f"the tolerance {value!r} is {what} (0.05: 5 % of the solution)"


STATED = Stated("decimal", "number", NO_NUMBER)
NUMBER = Task("number", decimal, "one number", problem_of=_problem, states=STATED)


@reward(NUMBER, takes=("tolerance",))
def vlrft_number(answer: Answer, gold: float, tolerance: Any = None) -> float:
    """1 if the answer states one distinct number x and |x - gold| <= tolerance x |gold|, else 0.
    Without a number in the column ``tolerance`` they must be equal, up to 1e-9 of the gold.
    Source: ChartQA's relaxed accuracy (tolerance 0.05).

    >>> answers = ["<answer>$41.80</answer>", "<answer>41 or 42</answer>"]
    >>> vlrft_number(answers, ["42", "42"], tolerance=[0.01, 0.01])
    [1.0, 0.0]
    """
    if answer.decimal is None:
        return 0.0
    slack = ((read_tolerance(tolerance) or 0.0) + EQUAL) * abs(gold)
    return 1.0 if abs(answer.decimal - gold) <= slack else 0.0
