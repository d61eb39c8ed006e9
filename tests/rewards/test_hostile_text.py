"""Hostile text scores in bounded time and memory, and never raises.

The aim is 0.1 s a text on an idle machine; the ceiling here only catches what hangs.
"""

import json
import random
import tracemalloc

import pytest
import scipy.optimize  # noqa: F401 - loaded when first needed: no text's memory
from support.contract_rows import right
from support.hostile import TEXTS, answered
from support.limits import time_limit

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.parsing import answers
from swift_vlrft.rewards import REWARDS

CEILING = 10.0
LONG = 50_000
"""Characters from which memory is measured: a shorter text that takes much takes long, too."""
LONG_GOLD = "12, 303 Grand Hôtel [\u0301 " * 400


@pytest.fixture(autouse=True)
def no_cache():
    answers.forget()


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * ("megabyte" in k)) for k in TEXTS]
)
def test_hostile_text_is_scored_in_bounded_time_and_memory(kind):
    text = TEXTS[kind]
    if len(text) > LONG:
        tracemalloc.start()
    try:
        with time_limit(CEILING):
            for name, reward in REWARDS.items():
                gold = LONG_GOLD if "ocr" in name else right(name)[1]
                (score,) = reward([text], [gold])
                reason = explain(name, text, gold)
                assert 0.0 <= score <= 1.0 and reason.score == score
                assert len(reason.text) < 400
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text) + 8_000_000
    finally:
        tracemalloc.stop()


def test_hostile_gold_is_unreadable_and_not_an_error():
    for gold in list(TEXTS.values())[::9]:
        with time_limit(CEILING):
            for name, reward in REWARDS.items():
                (score,) = reward([answered("[1, 2, 3, 4]")], [gold])
                assert score is None or 0.0 <= score <= 1.0, name


def test_more_boxes_than_are_read_score_zero():
    """The stated limit: a list of 20,000 is not searched for the one that is right."""
    text, gold = TEXTS["20,000 boxes"], "[{'Position': [254, 303, 991, 965]}]"
    assert REWARDS["vlrft_detection_iou"]([text], [gold]) == [0.0]
    assert explain("vlrft_detection_iou", text, gold).code == "too_long"
    assert answers.read(TEXTS["1,500 boxes"]).boxes is not None


def test_as_many_boxes_as_are_read_that_all_overlap_all_gold_boxes():
    generator = random.Random(0)

    def boxes(count):
        corners = [
            [generator.randint(a, a + 10) for a in (100, 100, 900, 900)] for _ in range(count)
        ]
        listed = [{"Position": corner} for corner in corners]
        return answered(json.dumps(listed, separators=(",", ":")))

    text, gold = boxes(2000), boxes(100)
    assert answers.read(text).boxes is not None
    for name, reward in REWARDS.items():
        if name.startswith("vlrft_detection"):
            with time_limit(CEILING):
                assert 0.0 <= reward([text], [gold])[0] <= 1.0
