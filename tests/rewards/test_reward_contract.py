"""What each reward gives, case by case: contract/REWARD.jsonl beside this file.

Every line has ``why``, ``completion``, ``solution``, further columns, and ``score``: by hand, null
where the solution cannot be read; ``at_most`` in its place bounds an answer that only must not pay.
The first line is an answer that earns 1: tests of all rewards take it for an example. Lines that
begin with "hole" are answers that a published reward gets wrong; others whose "why" is shared are
derived from a sentence of the contract.
"""

import pytest
from support.contract_rows import FOLDER, plain_rows, rows

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.rewards import REWARDS


def of_the_contract(text, solution, *, name, why, score=None, at_most=None, **columns):
    """What is wrong with the score of one case, and with the reason that is given for it."""
    listed = {key: [value] for key, value in columns.items()}
    (value,) = REWARDS[name]([text], [solution], **listed)
    right = value <= at_most if at_most is not None else value == pytest.approx(score, abs=1e-9)
    if not right or (score in (0.0, 1.0) and value != score):
        return f"{why}: {value} for {text!r}, not {score if at_most is None else at_most}"
    if value is not None and value < 1.0:
        reason = explain(name, text, solution, **columns)
        if reason.score != value or reason.code in ("ok", "wrong_answer"):
            return f"{why}: the reason of {text!r} is {reason}"
    return None


SLOW = {"vlrft_math": [pytest.mark.slow]}  # which waits for what explodes


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in REWARDS])
def test_every_case_of_the_contract(name):
    problems = []
    for number, row in enumerate(rows(name), 1):
        columns = {
            key: value for key, value in row.items() if key not in ("completion", "solution")
        }
        problem = of_the_contract(row["completion"], row["solution"], name=name, **columns)
        problems += [f"line {number}: {problem}"] * bool(problem)
    assert problems == []
    assert rows(name)[0]["score"] == 1.0 and len(rows(name)) >= 6
    # In one batch they score as they do alone.
    together = plain_rows(name)
    scores = REWARDS[name](*([row[key] for row in together] for key in ("completion", "solution")))
    assert scores == pytest.approx([row["score"] for row in together], abs=1e-9)


def test_every_reward_has_a_contract_and_every_contract_a_reward():
    assert {f"vlrft_{file.stem}" for file in FOLDER.iterdir()} == set(REWARDS)
