"""Score multiple choice and yes/no questions."""

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.short_answers import choice, yes_no
from swift_vlrft.rewards.contract import OPTION, Stated, Task, reward

_NO_OPTION = "answer states none of the options, or several"
CHOICE = Task(
    "choice",
    choice,
    "an option letter",
    states=Stated("choice", "choice", _NO_OPTION),
    asks_also=OPTION,
)
YES_NO = Task("yes_no", yes_no, "yes or no", states=Stated("yes_no", "choice", _NO_OPTION))


@reward(CHOICE)
def vlrft_choice(answer: Answer, gold: str) -> float:
    """1 if the answer begins with the gold option, either case: A, (A), [A], A), A., A:, "A. text",
    "A - text", "Option A"; 0 if it states another one behind it. Source: VLM-R1's mcq, anchored.

    >>> vlrft_choice(["<answer>(B) two dogs</answer>", "<answer>A or B</answer>"], ["B", "B"])
    [1.0, 0.0]
    """
    return 1.0 if answer.choice == gold else 0.0


@reward(YES_NO)
def vlrft_yes_no(answer: Answer, gold: str) -> float:
    """1 if the answer begins with the gold word, or with true, false, 是, 否, 对 or 错 for it; 0 if
    the other word is joined to it. Source: VLM-R1's yes_no, anchored.

    >>> vlrft_yes_no(["<answer>Yes, it is.</answer>", "<answer>not yes</answer>"], ["yes"] * 2)
    [1.0, 0.0]
    """
    return 1.0 if answer.yes_no == gold else 0.0
