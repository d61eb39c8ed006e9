"""Check a run during training: problems are said at once.

    WARNING swift_vlrft: the model has stopped detecting: 94% of the last 256 answers are empty ...

Each finding of health.py is said once, when it is first seen; rank 0 alone checks and speaks.
"""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from functools import wraps
from itertools import count
from typing import Any

from swift_vlrft.diagnostics.health import HALF, Health, group_of, judge, task_named
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.rewards import RewardFunction, Scores, reward_columns

log = logging.getLogger("swift_vlrft")

SETTLED_CALLS, FIRST_CALLS = 3, 10
"""Batches of a reward in a process: between them it is said that nothing was scored; after the last
one nothing is said any more of misplaced boxes whose reward is well.
"""

_said: set[tuple[str, str]] = set()
"""Codes and subjects of the problems that were said."""


def watch(name: str, function: RewardFunction) -> RewardFunction:
    """Wrap ``function`` in the checks: same scores, same ``__name__``, same errors."""
    health, unscored, calls = Health(name, sampled=True), Counter[str](), count(1)

    @wraps(function)
    def watched(completions: Sequence[Any], solution: Any = None, **columns: Any) -> Scores:
        scores = function(completions, solution, **columns)
        if os.environ.get("RANK", "0") != "0":
            return scores
        try:
            state, rows = columns.get("trainer_state"), _rows(completions, solution, columns)
            call = next(calls)
            for row in rows:
                told = reward_columns(row) | {"trainer_state": state}
                reason = explain(name, row["completion"], row["solution"], **told)
                group = group_of(row)
                health.add(row, reason, group and (*group, call))
                unscored.update([reason.text] * (reason.score is None))
            _say_findings(health, call)
            for finding in health.unread(HALF) if call >= SETTLED_CALLS else ():
                if _is_new(finding.code, finding.subject):
                    log.warning("%s", finding)
            if SETTLED_CALLS <= call <= FIRST_CALLS and unscored and not health.seen:
                _say_unscored(name, unscored)
        except Exception as error:
            if _is_new("check", ""):
                log.warning("%s: a check failed: %r. Scores are not affected.", name, error)
        return scores

    return watched


def _rows(
    completions: Sequence[Any], solution: Any, columns: dict[str, Any]
) -> list[dict[str, Any]]:
    """One dict per completion, with the columns that have a value for each."""
    solutions = [None] * len(completions) if solution is None else solution
    full = {"completion": completions, "solution": solutions}
    for key, values in columns.items():
        if isinstance(values, (list, tuple)) and len(values) == len(completions):
            full[key] = values
    return [{key: values[n] for key, values in full.items()} for n in range(len(completions))]


def _is_new(code: str, subject: str) -> bool:
    """Return whether to say it, which is then taken as done."""
    new = (code, subject) not in _said
    _said.add((code, subject))
    return new


def _say_findings(health: Health, call: int) -> None:
    finding, cause = judge(health.facts()), ("box_format", task_named(health.reward))
    # Causes take a second to find, so they are asked for where something is to be said.
    early = call <= FIRST_CALLS and cause not in _said
    if _is_new(finding.code, finding.subject) if finding else early:
        told = health.explained(finding)
        if told and (told == finding or _is_new(*cause)):
            log.warning("%s", told)


def _say_unscored(name: str, unscored: Counter[str]) -> None:
    if _is_new("nothing scored", name):
        why = ", ".join(f"{number} times {text}" for text, number in unscored.most_common(5))
        log.warning(
            f"{name}: none of the first {unscored.total()} completions got a score: {why}. If no "
            "row of the data sets is for its task, nothing is learned from it: `vlrft data check "
            "PATH` lists the rewards that fit a set."
        )
