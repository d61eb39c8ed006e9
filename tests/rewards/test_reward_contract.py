"""What each reward gives, case by case: contract/REWARD.jsonl beside this file.

Every line has ``why``, ``completion``, ``solution``, further columns, and ``score``: by hand, null
where the solution cannot be read; ``at_most`` in its place bounds an answer that only must not pay.
Lines that begin with "hole" are answers that a published reward gets wrong.
"""

import json
from pathlib import Path

import pytest

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.rewards import REWARDS

FILES = Path(__file__).parent / "contract"


def of_the_contract(text, solution, *, name, why, score=None, at_most=None, **columns):
    """What is wrong with the score of one case, and with the reason that is given for it."""
    given = {key: [value] for key, value in columns.items()}
    (value,) = REWARDS[name]([text], [solution], **given)
    right = value <= at_most if at_most is not None else value == pytest.approx(score, abs=1e-9)
    if not right or (score in (0.0, 1.0) and value != score):
        return f"{why}: {value} for {text!r}, not {score if at_most is None else at_most}"
    if value is not None and value < 1.0:
        reason = explain(name, text, solution, **columns)
        if reason.score != value or reason.code in ("ok", "wrong_answer"):
            return f"{why}: the reason of {text!r} is {reason}"
    return None


@pytest.mark.parametrize("name", REWARDS)
def test_every_case_of_the_contract(name):
    lines = (FILES / f"{name.removeprefix('vlrft_')}.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    found = [of_the_contract(c.pop("completion"), c.pop("solution"), name=name, **c) for c in cases]
    assert [f"line {n}: {wrong}" for n, wrong in enumerate(found, 1) if wrong] == []
    assert len(cases) >= 6
