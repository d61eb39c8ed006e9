"""Score classification: name the class."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from swift_vlrft.parsing.answers import Answer, normalise, plain
from swift_vlrft.parsing.literals import literal
from swift_vlrft.parsing.unwrap import unwrapped
from swift_vlrft.rewards.contract import Stated, Task, reward


def problem_of_text(columns: Mapping[str, Any]) -> str | None:
    """Say what a gold is that is no one text: a placeholder, a list, an object; None if it is one.
    Two numbers in brackets are an interval, and a name.
    """
    text = str(columns.get("solution") or "")
    if mark := re.search("<(?:bbox|ref-object)>", text):
        return f"the solution holds {mark[0]}, which ms-swift fills in messages alone"
    inner = unwrapped(text)
    held = literal(inner) or inner.startswith(("{", "[{"))
    interval = isinstance(held, list) and len(held) == 2 and {*map(type, held)} <= {int, float}
    if not held or interval:
        return None
    return (
        f"the solution {text[:80]!r} is a list or an object, not one text; store one as the "
        "solution, and other accepted ones as aliases"
    )


CLASSIFICATION = Task(
    "classification",
    lambda text: normalise(text) or None,
    "a class name",
    problem_of=problem_of_text,
    states=Stated("label", "label", "answer names no class"),
    hub_category="image-classification",
)


@reward(CLASSIFICATION, takes=("aliases",))
def vlrft_classification(answer: Answer, gold: str, aliases: Any = None) -> float:
    """1 if answer and solution are the same name, else 0; never by substring or edit distance.

    Names are compared as ``normalise`` leaves them. An optional column ``aliases`` holds further
    accepted names per row: a list of strings, or that list as a JSON string. Source: Visual-RFT's
    classification reward, which accepts any part of the name.

    >>> names = "African_Violet.", "violet"
    >>> vlrft_classification([f"<answer>{n}</answer>" for n in names], ["african violet"] * 2)
    [1.0, 0.0]
    """
    return 1.0 if answer.label in right_names(gold, aliases) else 0.0


def right_names(gold: str, aliases: Any) -> set[str]:
    """Return the normalised accepted names: the solution's and the row's aliases."""
    return {gold, *map(normalise, alias_texts(aliases))} - {""}


def alias_texts(aliases: Any) -> list[str]:
    """Return the texts of a row's column ``aliases``: a list, that list as JSON, or one name."""
    aliases = plain(aliases)
    if isinstance(aliases, str) and aliases.lstrip().startswith("["):  # else it is one plain name
        with suppress(ValueError, RecursionError):
            aliases = json.loads(aliases)
    names = aliases if isinstance(aliases, (list, tuple, set)) else [aliases]
    return [str(value) for name in names if (value := plain(name)) is not None]
