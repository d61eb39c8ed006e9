"""Wrong answers that a published reward pays for, or right ones that it does not: ours must not."""

import json
from pathlib import Path

import pytest

from swift_vlrft.rewards import REWARDS

HOLES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "reward_holes.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", HOLES, ids=lambda case: f"{case['id']}-{case['peer']}")
def test_hole_is_closed(case):
    score = REWARDS[case["reward"]]([case["completion"]], [case["solution"]])
    assert score == [pytest.approx(case["expected"], abs=1e-4)], case["why"]
