"""Hostile text scores in bounded time and memory, and never raises.

The aim is 0.1 s a text on an idle machine; the ceiling here only catches what hangs.
"""

# ruff: noqa: E501 - rows of a table stay on one line

import json
import random
import time
import tracemalloc

import pytest
import scipy.optimize  # noqa: F401 - loaded when first needed: no text's memory
from support.contract_rows import right
from support.hostile import TEXTS, answered
from support.limits import time_limit

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.parsing import answers, labels
from swift_vlrft.rewards import REWARDS

CEILING = 10.0
LONG = 50_000
"""Characters from which memory is measured: a shorter text that takes much takes long, too."""
LONG_GOLD = "12, 303 Grand Hôtel [\u0301 " * 400


@pytest.fixture(autouse=True)
def no_cache():
    answers.forget()


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (len(TEXTS[k]) > 500)) for k in TEXTS]
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


@pytest.mark.slow
def test_hostile_gold_is_unreadable_and_not_an_error():
    for gold in list(TEXTS.values())[::9]:
        with time_limit(CEILING):
            for name, reward in REWARDS.items():
                (score,) = reward([answered("[1, 2, 3, 4]")], [gold])
                assert score is None or 0.0 <= score <= 1.0, name


UNITS = [
    "{", "}", "{}", "[", "[[1,2,3,4],", "(1,2)", "[1,2],", "<1", "{'a':", "['a\"b'],", "'", '"', "\\", "\\\\'", "\\boxed{", "\\boxed{}",
    "\\text{", "\\frac{1}{", "\\frac", "$", "$a", "**", "**a", "`a", "``", "1", "1,", "1 ", "1/", "1 m^2 ", "1,000", "-", "- ", "a ", "a-", "a_",
    "a and ", "a & ", "no ", "yes, ", "not ", "or 4 ", "four ", "4 (1) ", "4: ", "4. ", "A. ", "B) ", "(A) ", " ", "\n", "\n- ", ";", "→", "> ", " then ", "，",
    "和", "有四只", "Answer: ", "答案：", "is ", "<point x='1' y='2'>", "<point ", "x='1' ", "click(1,", "<box>", "<box>1 ", "<box>(1,2),(3,4)",
    "<|box_start|>", "<|box_start|>(1,2)", "<|begin_of_box|>", "<|", "</s>", "<think>", "</think>", "<answer>", "```json\n", "\u0301", "\u0660", "½", "²", "\u200b",
    "there is no a ", "no objects ", "{\"arguments\":", "'bbox':[1,2,3,4],", "1e5 ", "0.", "+1", "\\times 10^2 ", "√", "π",
]  # fmt: skip


READERS = [f"vlrft_{name}" for name in (
    "detection_format", "grounding_iou", "pointing", "ocr", "list", "ordering", "classification", "counting", "number",
    "choice", "yes_no", "boxed_format",
)]  # fmt: skip
"""A reward for each way of reading; mathematics has a process with a limit of its own."""


@pytest.mark.slow
def test_four_times_the_text_takes_no_sixteen_times_the_work():
    """Quadratic work takes sixteen times as much; what takes milliseconds is forgiven."""

    def seconds(text):
        answers.forget()
        labels.normalise.cache_clear()
        start = time.process_time()
        for name in READERS:
            REWARDS[name]([text], [right(name)[1]])
        return time.process_time() - start

    grown = []
    for unit in UNITS:
        for size in (2_400, 24_000):  # short answers have at most 10,000 characters
            one, four = (answered(f"[4{unit * (n // len(unit))}x") for n in (size, 4 * size))
            if seconds(four) > 0.05:
                after, before = (min(seconds(text) for _ in range(3)) for text in (four, one))
                grown += [(unit, size, before, after)] * (after > 9 * before)
    assert grown == []


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
