"""Hostile text scores in bounded time and memory, and never raises.

The aim is 0.1 s a text on an idle machine; the ceiling here only catches what hangs.
"""

import json
import random
import tracemalloc

import pytest
from support.hostile import TEXTS, answered
from support.limits import time_limit

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.parsing import answers
from swift_vlrft.rewards import REWARDS

GOLD = {
    "detection": "[{'Position': [254, 303, 991, 965], 'label': 'dog'}, {'Position': [1, 2, 3, 4]}]",
    "grounding": "[254, 303, 991, 965]",
    "classification": "cat",
    "counting": "4",
    "choice": "A",
    "yes_no": "yes",
    "pointing": "[[254, 303, 991, 965], [1, 2, 3, 4], [2, 2, 5, 5]]",
    "ocr": "12, 303 Grand Hôtel [\u0301 " * 400,
    "number": "1.5",
    "list": '["1", "2", "a"]',
    "ordering": '["1", "2", "a"]',
}
CEILING = 10.0


@pytest.fixture(autouse=True)
def no_cache():
    answers.forget()


@pytest.mark.parametrize("kind", TEXTS)
def test_hostile_text_is_scored_in_bounded_time_and_memory(kind):
    import scipy.optimize  # noqa: F401 - loaded when first needed: no text's memory

    text = TEXTS[kind]
    for name, function in REWARDS.items():
        answers.forget()
        gold = GOLD[REWARDS[name].task.name] if REWARDS[name].task else ""
        with time_limit(CEILING):
            value = function([text], [gold])[0]
            reason = explain(name, text, gold)
        assert 0.0 <= value <= 1.0 and reason.score == value
        assert len(reason.text) < 400
    answers.forget()
    tracemalloc.start()
    try:
        REWARDS["vlrft_detection_iou"]([text], [GOLD["detection"]])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(text) + 8_000_000


def test_hostile_gold_is_unreadable_and_not_an_error():
    for name, function in REWARDS.items():
        for text in list(TEXTS.values())[:8]:
            values = function([answered("[1, 2, 3, 4]")], [text])
            assert values[0] is None or 0.0 <= values[0] <= 1.0, name


def test_more_boxes_than_are_read_score_zero():
    """The stated limit: a list of 20,000 is not searched for the one that is right."""
    text = TEXTS["20,000 boxes"]
    assert REWARDS["vlrft_detection_iou"]([text], [GOLD["detection"]]) == [0.0]
    assert explain("vlrft_detection_iou", text, GOLD["detection"]).code == "too_long"
    assert answers.read(TEXTS["1,500 boxes"]).boxes is not None


@pytest.mark.parametrize("name", [n for n in REWARDS if n.startswith("vlrft_detection")])
def test_as_many_boxes_as_are_read_that_all_overlap_all_gold_boxes(name):
    generator = random.Random(0)

    def boxes(count):
        corners = [
            [generator.randint(a, a + 10) for a in (100, 100, 900, 900)] for _ in range(count)
        ]
        listed = [{"Position": corner} for corner in corners]
        return answered(json.dumps(listed, separators=(",", ":")))

    text, gold = boxes(2000), boxes(100)
    assert answers.read(text).boxes is not None
    with time_limit(CEILING):
        assert 0.0 <= REWARDS[name]([text], [gold])[0] <= 1.0
