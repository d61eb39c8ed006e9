"""Score lists of names, in any order."""

from collections import Counter

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.items import meant, read_gold_items
from swift_vlrft.rewards.contract import Stated, Task, reward
from swift_vlrft.rewards.matching import score_without_boxes


def read_names(text: str, *, ordered: bool = False) -> list[str] | None:
    """Return the gold items; None if the text holds none, or an item that is no name."""
    items = read_gold_items(text, ordered=ordered)
    return None if items is None or "" in items else items


NO_LIST = "answer is empty or too long to be read as a list"
LIST = Task(
    "list",
    read_names,
    "a list of names or 'No Objects'",
    has_items=True,
    reads_most=True,
    states=Stated("items", "items", NO_LIST, may_be_boxed=False),
    headline="f1",
)


@reward(LIST)
def vlrft_list(answer: Answer, gold: list[str]) -> float:
    """F1 of items, as a multiset: 2 equal / (items + gold items). Names are equal as under
    ``vlrft_classification``; both lists empty 1, one empty 0. Source: ours.

    >>> vlrft_list(["<answer>apple, pear, fig</answer>"], ['["Apple", "fig"]'])  # 2 x 2 / (3 + 2)
    [0.8]
    """
    if not answer.items or not gold:
        return score_without_boxes(answer.items, gold)
    items = meant(answer.items, gold)
    return 2.0 * (Counter(items) & Counter(gold)).total() / (len(items) + len(gold))
