"""Counts, options, yes or no: what is added to an answer never pays."""

import random

import pytest

from swift_vlrft.rewards import REWARDS


@pytest.mark.parametrize(
    ("name", "gold", "wrong"),
    [
        ("counting", "4", "5|or 5|not|5 cats|more than|+1|five|(5)|maybe"),
        ("number", "4", "5|, 40|or 5|; 5|5 cats|and 40|+1|five|maybe"),
        ("choice", "A", "B|b)|(b)|or b|B. dog|C:|and C"),
        ("yes_no", "yes", "no|not|or no|No.|never|maybe|?"),
        ("classification", "cat", "dog|or dog|not|and a cat"),
    ],
)
def test_what_is_added_never_raises_the_score(name, gold, wrong):
    rng, wrong = random.Random(0), wrong.split("|")
    for _ in range(500):
        words = [rng.choice([gold, *wrong]) for _ in range(rng.randint(1, 3))]
        more = list(words)
        more.insert(rng.randint(0, len(words)), rng.choice(wrong))
        answers = [f"<answer>{' '.join(text)}</answer>" for text in (words, more)]
        before, after = REWARDS[f"vlrft_{name}"](answers, [gold, gold])
        assert after <= before, (words, more)
