"""Classification: name the class.

"Which flower is it?"
completion  <think>..</think><answer> African-Violet. </answer>
solution    <answer>african violet</answer>                      vlrft_classification 1.0
"""

import json
from functools import lru_cache
from typing import Any

from swift_vlrft.answers import Answer, gold_text, normalise
from swift_vlrft.rewards.contract import Scores, Task, column, score_rows


@lru_cache(maxsize=8192)
def read_gold(solution: str) -> str | None:
    """The normalised class name; None where nothing is left of it."""
    return normalise(gold_text(solution)) or None


CLASSIFICATION = Task("classification", read_gold, "a class name")


def vlrft_classification(
    completions: list[str], solution: list[str] | None = None, **columns: Any
) -> Scores:
    """1 where answer and solution are the same name, else 0; never by substring or edit distance.

    Names are compared after NFKC and case folding, with runs of blanks, ``_`` and ``-`` as one
    blank, and without outer punctuation and one pair of quotes. An optional column ``aliases``
    holds further right names per row: a list of texts, or that list as a JSON string.
    """
    aliases = columns.get("aliases")
    if aliases is None:
        per_row: list[Any] = [None] * len(completions)
    else:
        per_row = list(column("vlrft_classification", "aliases", aliases, completions, columns))
    return score_rows(
        "vlrft_classification", CLASSIFICATION, completions, solution, columns, _same_name, per_row
    )


def right_names(gold: str, aliases: Any) -> set[str]:
    """The normalised names that count as right: the solution's and the row's aliases."""
    if isinstance(aliases, str):
        try:
            aliases = json.loads(aliases)
        except (ValueError, RecursionError):
            aliases = [aliases]  # one name, written plainly
    if aliases is None:
        return {gold}
    names = [aliases] if isinstance(aliases, (str, int, float)) else list(aliases)
    return {gold, *(normalise(str(name)) for name in names if name is not None)} - {""}


def _same_name(answer: Answer, gold: str, aliases: Any) -> float:
    return (
        1.0
        if answer.label == gold
        or (aliases is not None and answer.label in right_names(gold, aliases))
        else 0.0
    )
