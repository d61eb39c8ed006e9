"""Multiple choice and yes/no questions.

completion  <think>..</think><answer>B. two dogs</answer>
solution    <answer>B</answer>                                   vlrft_choice 1.0

completion  <think>..</think><answer>I know it: yes</answer>
solution    <answer>yes</answer>                                 vlrft_yes_no 1.0
"""

from functools import lru_cache
from typing import Any

from swift_vlrft.parsing.answers import Answer, gold_text
from swift_vlrft.parsing.short_answers import choice, yes_no
from swift_vlrft.rewards.contract import Scores, Task, score_rows


@lru_cache(maxsize=8192)
def read_gold_choice(solution: str) -> str | None:
    """The option letter, upper case; None where the text states none or two."""
    return choice(gold_text(solution))


@lru_cache(maxsize=8192)
def read_gold_yes_no(solution: str) -> str | None:
    """``"yes"`` or ``"no"``; None where the text states neither or both."""
    return yes_no(gold_text(solution))


CHOICE = Task("choice", read_gold_choice, "an option letter")
YES_NO = Task("yes_no", read_gold_yes_no, "yes or no")


def vlrft_choice(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """1 where the answer is the gold option: A, (A), A), A., A: or "A. text", either case; one
    option only.
    """
    return score_rows("vlrft_choice", CHOICE, completions, solution, columns, _same_choice)


def vlrft_yes_no(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """1 where the answer holds the gold word, as a whole word, and not the other one or "not"
    before it.
    """
    return score_rows("vlrft_yes_no", YES_NO, completions, solution, columns, _same_yes_no)


def _same_choice(answer: Answer, gold: str) -> float:
    return 1.0 if answer.choice == gold else 0.0


def _same_yes_no(answer: Answer, gold: str) -> float:
    return 1.0 if answer.yes_no == gold else 0.0
