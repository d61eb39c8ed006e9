"""What every reward does with its arguments, written once.

    vlrft_counting(["<think>t</think><answer>4</answer>"], ["4"], task=["counting"])      [1.0]
    vlrft_counting(["<think>t</think><answer>4</answer>"], ["4"], task=["detection"])     [None]

A reward gets one value per completion in every column, returns one score per completion, and never
raises on text: only a wrong number of values or a missing column is an error of the caller. A
column is a list, a tuple, or what numpy, pandas, pyarrow, torch or datasets have for one; one text
in place of a column other than ``solution`` stands for every row.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from swift_vlrft.parsing.answers import gold_text, plain, read

log = logging.getLogger("swift_vlrft")

Scores = list[float | None]


@dataclass(frozen=True)
class Task:
    """A kind of row: what its ``task`` column says, and how its gold solution is read.

    ``read_gold`` takes the solution's text and returns None where it cannot be read; it caches.
    ``holds`` names what a solution holds, for messages.
    """

    name: str
    read_gold: Callable[[str], Any]
    holds: str


def score_rows(
    name: str,
    task: Task,
    completions: Sequence[Any],
    solution: Sequence[Any] | None,
    columns: dict[str, Any],
    score: Callable[..., float],
    *per_row: Sequence[Any],
) -> Scores:
    """``score(answer, gold, *values)`` for every row of ``task``, None for rows of other tasks.

    ``per_row`` are further columns of which ``score`` gets one value each. A gold solution that
    cannot be read gives None and one warning. ValueError: see ``column``.
    """
    completions = column(name, "completions", completions, completions, columns)
    golds = column(name, "solution", solution, completions, columns)
    tasks = routing(name, completions, columns)
    scores: Scores = []
    unreadable = []
    for row, completion in enumerate(completions):
        if tasks is not None and (tasks[row] or task.name) != task.name:
            scores.append(None)
            continue
        text = golds[row] if type(golds[row]) is str else gold_text(golds[row])
        gold = task.read_gold(text)
        if gold is None:
            unreadable.append((row, text))
            scores.append(None)
        else:
            scores.append(score(read(completion), gold, *[values[row] for values in per_row]))
    if unreadable:
        _warn_unreadable(name, task, unreadable)
    return scores


def column(
    name: str,
    key: str,
    values: Any,
    completions: Sequence[Any],
    columns: dict[str, Any],
) -> Sequence[Any]:
    """``values`` as a list or tuple with one value per completion; one text stands for every row,
    except as the solution. ValueError naming the reward, the column and what was given.
    """
    if isinstance(completions, str):
        raise ValueError(f"{name}: completions is one string; a list of completions is needed.")
    if values is None:
        given = ", ".join(sorted(columns)) or "no other column"
        raise ValueError(
            f"{name}: the column {key!r} is missing (given: {given}). Add it to the data set, or "
            f'rename yours with --columns \'{{"answer": "{key}"}}\'.'
        )
    if type(values) not in (list, tuple):
        values = _listed(values)
        if isinstance(values, str) and key != "solution":
            values = [values] * len(completions)
    if not isinstance(values, (list, tuple)) or len(values) != len(completions):
        listed = isinstance(values, (list, tuple))
        count = f"{len(values)} values" if listed else f"one {type(values).__name__}"
        raise ValueError(
            f"{name}: {len(completions)} completions, but {count} in the column {key!r}; "
            "there must be one value per completion."
        )
    return values


def _listed(values: Any) -> Any:
    """A column as a list; one value as it is."""
    values = plain(values)
    is_column = isinstance(values, Iterable) and not isinstance(values, (str, Mapping, Set))
    return list(values) if is_column else values


def optional_column(
    name: str, key: str, completions: Sequence[Any], columns: dict[str, Any]
) -> Sequence[Any] | None:
    """The column, or None where the data set has none. ValueError: see ``column``."""
    values = columns.get(key)
    if values is None or (not isinstance(values, (list, tuple)) and plain(values) is None):
        return None
    return column(name, key, values, completions, columns)


def routing(
    name: str, completions: Sequence[Any], columns: dict[str, Any]
) -> Sequence[str | None] | None:
    """The ``task`` column, or None where the data set has none: then every row is scored."""
    tasks = optional_column(name, "task", completions, columns)
    if tasks is None or _TEXTS.issuperset(map(type, tasks)):
        return tasks
    return [plain(task) for task in tasks]


_TEXTS = {str, type(None)}


MAX_WARNINGS = 10
_warned: set[tuple[str, str]] = set()


def _warn_unreadable(name: str, task: Task, unreadable: list[tuple[int, str]]) -> None:
    """One warning per batch, not repeated for solutions that were named before, ten in all."""
    new = [(row, text) for row, text in unreadable if (task.name, text) not in _warned]
    if not new or len(_warned) >= MAX_WARNINGS:
        return
    _warned.update((task.name, text) for _, text in new[:MAX_WARNINGS])
    row, text = new[0]
    others = f", and of {len(unreadable) - 1} more rows," if len(unreadable) > 1 else ""
    log.warning(
        "%s: the gold solution of row %d%s cannot be read as %s: %r. These rows get no reward "
        "(None). This is an error in the data set; it is not reported again.",
        name,
        row,
        others,
        task.holds,
        text if len(text) <= 120 else text[:120] + "...",
    )
