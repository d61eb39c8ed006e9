"""Score counting: say how many.

The answer states a number if it holds one, in digits or words, that nothing in its clause denies,
bounds, doubts, rounds, multiplies or adds to. See ``short_answers.number``.
"""

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.short_answers import number
from swift_vlrft.rewards.contract import Stated, Task, reward


def read_count(text: str) -> float | None:
    """Return a whole number >= 0; None if the text states none."""
    count = number(text)
    return count if count is not None and count >= 0 and count.is_integer() else None


NO_NUMBER = "answer states no number, several, or leaves it open"
STATED = Stated("number", "number", NO_NUMBER)
COUNTING = Task("counting", read_count, "a whole number", states=STATED)


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
