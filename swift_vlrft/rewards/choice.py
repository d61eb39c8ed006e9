"""Score multiple choice and yes/no questions.

completion  <think>..</think><answer>B. two dogs</answer>
solution    <answer>B</answer>                                   vlrft_choice 1.0

completion  <think>..</think>\\boxed{Yes}
solution    <answer>yes</answer>                                 vlrft_yes_no 1.0
"""

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.short_answers import choice, yes_no
from swift_vlrft.rewards.contract import Stated, Task, reward

_NO_OPTION = "answer states none of the options, or several"
CHOICE = Task("choice", choice, "an option letter", states=Stated("choice", "choice", _NO_OPTION))
YES_NO = Task("yes_no", yes_no, "yes or no", states=Stated("yes_no", "choice", _NO_OPTION))


@reward(CHOICE)
def vlrft_choice(answer: Answer, gold: str) -> float:
    """1 if the answer begins with the gold option, either case: A, (A), [A], A), A., A:, "A. text",
    "A - text", "Option A"; 0 if it states another one behind it.
    """
    return 1.0 if answer.choice == gold else 0.0


@reward(YES_NO)
def vlrft_yes_no(answer: Answer, gold: str) -> float:
    """1 if the answer begins with the gold word, or with true, false, 是, 否, 对 or 错 for it; 0 if
    the other word is joined to it.
    """
    return 1.0 if answer.yes_no == gold else 0.0
