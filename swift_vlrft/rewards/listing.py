"""Score lists of names, in any order or in the right one."""

from bisect import bisect_right, insort
from collections import Counter

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.items import meant, read_gold_items
from swift_vlrft.rewards.contract import Stated, Task, compares, reward


def read_names(text: str, *, ordered: bool = False) -> list[str] | None:
    """Return the gold items; None if the text holds none, or an item that is no name."""
    items = read_gold_items(text, ordered=ordered)
    return None if items is None or "" in items else items


def read_order(text: str) -> list[str] | None:
    """Return the gold items in order; None for no items, an item that is no name, or a repeat."""
    items = read_names(text, ordered=True)
    return items if items and len(set(items)) == len(items) else None


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
ORDERING = Task(
    "ordering",
    read_order,
    "a list of distinct names",
    has_items=True,
    reads_most=True,
    states=Stated("order", "items", NO_LIST, may_be_boxed=False),
    headline="mean_tau",
)


@reward(LIST)
@compares("items")
def vlrft_list(items: list[str], gold: list[str]) -> float:
    """F1 of items, as a multiset: 2 equal / (items + gold items). Names are equal as under
    ``vlrft_classification``; both lists empty 1, one empty 0. Source: ours.

    >>> vlrft_list(["<answer>apple, pear, fig</answer>"], ['["Apple", "fig"]'])  # 2 x 2 / (3 + 2)
    [0.8]
    """
    items = meant(items, gold)
    return 2.0 * (Counter(items) & Counter(gold)).total() / (len(items) + len(gold))


@reward(ORDERING)
def vlrft_ordering(answer: Answer, gold: list[str]) -> float:
    """max(0, Kendall's tau) if the answer holds exactly the gold's items, else 0; 1 for one item
    that is right. Source: Kendall 1938.

    >>> [tau] = vlrft_ordering(["<answer>dog, cat, bird, fish</answer>"], ["cat, dog, bird, fish"])
    >>> round(tau, 3)  # of 6 pairs, 5 in order less 1 swapped
    0.667
    """
    return max(0.0, tau(answer.order, gold) or 0.0)


def tau(items: list[str] | None, gold: list[str]) -> float | None:
    """Return Kendall's tau of two orders of the same distinct items, in [-1, 1], 1 for one item;
    None if the items are others.
    """
    items = meant(items or [], gold)
    if len(items) != len(gold) or set(items) != set(gold):
        return None
    place = {name: n for n, name in enumerate(gold)}
    before: list[int] = []
    swapped = 0
    for n in (place[name] for name in items):
        swapped += len(before) - bisect_right(before, n)
        insort(before, n)
    pairs = len(gold) * (len(gold) - 1) // 2
    return 1.0 - 2.0 * swapped / pairs if pairs else 1.0
