"""Score numbers: counted, or read and measured, with decimals, a unit, or a tolerance.

The answer states a number if it holds one that nothing in its clause denies, bounds, doubts,
rounds, multiplies or adds to. See ``number`` and ``decimal`` of parsing/short_answers.py.
"""

import math
from collections.abc import Mapping
from typing import Any

from swift_vlrft.parsing.answers import Answer, plain
from swift_vlrft.parsing.short_answers import decimal, number
from swift_vlrft.rewards.contract import Stated, Task, reward

EQUAL = 1e-9
"""Relative difference of numbers that are equal but for rounding."""


def read_count(text: str) -> float | None:
    """Return a whole number >= 0; None if the text states none."""
    count = number(text)
    return count if count is not None and count >= 0 and count.is_integer() else None


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


def _problem(columns: Mapping[str, Any]) -> str | None:
    value = columns.get("tolerance")
    tolerance = read_tolerance(value)
    if tolerance is not None and tolerance <= 1:
        return None
    what = "no number from 0 up" if tolerance is None else "over 1, so that 0 would be right, too"
    return f"the tolerance {value!r} is {what} (0.05: 5 % of the solution)"


COUNT = Stated("number", "number", "answer states no number, several, or leaves it open")
MEASURE = COUNT._replace(field="decimal")
COUNTING = Task("counting", read_count, "a whole number", states=COUNT)
NUMBER = Task("number", decimal, "one number", problem_of=_problem, states=MEASURE)


@reward(COUNTING)
def vlrft_counting(answer: Answer, gold: float) -> float:
    """1 if the answer states exactly the gold number, else 0, also if hedged or several.
    Source: R1-V's counting, without its search for any number.

    >>> vlrft_counting(["<answer>4 dogs</answer>", "<answer>4 or 5</answer>"], ["4", "4"])
    [1.0, 0.0]
    """
    return 1.0 if answer.number == gold else 0.0


@reward(COUNTING)
def vlrft_counting_soft(answer: Answer, gold: float) -> float:
    """max(0, 1 - |n - gold| / max(gold, 1)); 0 if no whole number is stated. Source: ours.

    >>> vlrft_counting_soft(["<answer>I count 3 dogs</answer>"], ["4"])
    [0.75]
    """
    count = answer.number
    if count is None or not count.is_integer():
        return 0.0
    return max(0.0, 1.0 - abs(count - gold) / max(gold, 1.0))


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
