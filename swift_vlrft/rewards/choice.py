"""Multiple choice and yes/no questions.

completion  <think>..</think><answer>B. two dogs</answer>
solution    <answer>B</answer>                                   vlrft_choice 1.0

completion  <think>..</think><answer>I know it: yes</answer>
solution    <answer>yes</answer>                                 vlrft_yes_no 1.0
"""

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.short_answers import choice, yes_no
from swift_vlrft.rewards.contract import Task, reward

CHOICE = Task("choice", choice, "an option letter")
YES_NO = Task("yes_no", yes_no, "yes or no")


@reward(CHOICE)
def vlrft_choice(answer: Answer, gold: str) -> float:
    """1 if the answer is the gold option: A, (A), A), A., A: or "A. text", either case; one
    option only.
    """
    return 1.0 if answer.choice == gold else 0.0


@reward(YES_NO)
def vlrft_yes_no(answer: Answer, gold: str) -> float:
    """1 if the answer holds the gold word, as a full word, and not the other word or "not"
    before it.
    """
    return 1.0 if answer.yes_no == gold else 0.0
