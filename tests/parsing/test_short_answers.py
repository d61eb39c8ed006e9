"""Counts, option letters and yes or no: what states one, and what leaves it open."""

import random

import pytest
from support.limits import time_limit

from swift_vlrft.parsing.short_answers import choice, number, yes_no
from swift_vlrft.rewards import REWARDS


@pytest.mark.parametrize(
    ("name", "gold", "wrong"),
    [
        (
            "vlrft_counting",
            "4",
            ["5", "or 5", "not", "5 cats", "more than", "+1", "five", "(5)", "maybe"],
        ),
        ("vlrft_choice", "A", ["B", "b)", "(b)", "or b", "B. dog", "C:", "and C"]),
        ("vlrft_yes_no", "yes", ["no", "not", "or no", "No.", "never", "maybe", "?"]),
        ("vlrft_classification", "cat", ["dog", "or dog", "not", "and a cat"]),
    ],
)
def test_what_is_added_never_raises_the_score(name, gold, wrong):
    rng = random.Random(0)
    for _ in range(500):
        words = [rng.choice([gold, *wrong]) for _ in range(rng.randint(1, 3))]
        added = list(words)
        added.insert(rng.randint(0, len(words)), rng.choice(wrong))
        before, after = (
            REWARDS[name]([f"<answer>{' '.join(text)}</answer>"], [gold])[0]
            for text in (words, added)
        )
        assert after <= before, (words, added)


@pytest.mark.parametrize("read", [number, choice, yes_no])
def test_long_answers_are_read_in_time(read):
    pieces = [
        "4 ",
        "so 4 ",
        "4, ",
        "no ",
        "yes ",
        "not yes ",
        "a. ",
        "and b ",
        "\n b",
        " ",
        "4 a ",
        "-",
    ]
    for start in ("", "A. ", "4 ", "yes "):
        for piece in pieces:
            text = (start + piece * 10_000)[:10_000]
            with time_limit(1):
                read(text)
