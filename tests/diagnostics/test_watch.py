"""The checks in training: one clear warning a problem, scores untouched."""

import inspect
import logging

import pytest
from support.hostile import answered as answer

from swift_vlrft.diagnostics import watch as watching
from swift_vlrft.diagnostics.watch import watch
from swift_vlrft.rewards import REWARDS

GOLD = "<answer>[{'Position': [100, 100, 200, 200], 'Confidence': 1}]</answer>"
IOU = "vlrft_detection_iou"


@pytest.fixture(autouse=True)
def fresh(monkeypatch, caplog):
    monkeypatch.setattr(watching, "_said", set())
    caplog.set_level(logging.WARNING, logger="swift_vlrft")


def run(function, texts, calls=5, **columns):
    for _ in range(calls):
        function([answer(text) for text in texts], [GOLD] * len(texts), **columns)


def test_a_watched_reward_is_the_same_function_to_ms_swift():
    for name, function in REWARDS.items():
        watched = watch(name, function)
        assert inspect.isfunction(watched) and watched.__name__ == name
        texts, gold = [answer("[100, 100, 200, 200]"), "?"], ["[100, 100, 200, 200]"] * 2
        task = ["grounding"] * 2
        assert watched(texts, gold, task=task) == function(texts, gold, task=task)
    with pytest.raises(ValueError, match="solution"):  # errors of the caller pass through
        watch(IOU, REWARDS[IOU])(["a"])


RIGHT, WRONG, LOOSE = "[100, 100, 200, 200]", "[1, 2, 3, 4]", "[100, 100, 200, 190]"


@pytest.mark.parametrize(
    ("texts", "calls", "prompts", "warned"),
    [
        (["[0.1, 0.1, 0.2, 0.2]"] * 8, 5, None, "in shares of the sides: use SET:unit"),
        (["[900, 500, 1400, 1100]"] * 8, 5, None, "boxes do not fit their images"),
        (["a dog"] * 6 + [RIGHT] * 2, 40, None, "only 25% of the last 256 answers"),
        (["a dog"] * 6 + [RIGHT] * 2, 39, None, None),  # the first steps alone are not judged
        (["a dog"] * 8, 2, None, "none of the 16 answers"),  # but where nothing is read
        ([RIGHT] * 4 + [WRONG] * 4, 8, None, None),  # of no known groups
        ([RIGHT] * 4 + [WRONG] * 4, 8, "pppqqqqq", None),  # q has variance
        ([RIGHT] * 4 + [WRONG] * 4, 8, "ppppqqqq", "zero variance"),
        ([RIGHT] * 2 + [WRONG] * 2, 16, "ppqq", None),  # parts of groups
    ],
)
def test_one_warning_for_each_problem(texts, calls, prompts, warned, caplog, monkeypatch):
    columns = {"prompt_id": list(prompts)} if prompts else {}
    for rank in ("1", "0"):  # other ranks say nothing
        monkeypatch.setenv("RANK", rank)
        for name in (IOU, "vlrft_detection_f1")[: 1 if prompts else 2]:
            run(watch(name, REWARDS[name]), texts, calls, **columns)
        assert len(caplog.messages) == (rank == "0" and warned is not None)
    assert all(warned in text for text in caplog.messages)


def test_pictures_that_share_a_prompt_are_groups_of_their_own(caplog):
    other = "[{'Position': [1, 2, 3, 4]}]"
    watched = watch(IOU, REWARDS[IOU])
    for _ in range(8):  # ms-swift's prompt_id is the prompt's text: all 1 for one, all 0 for other
        texts = [answer(RIGHT)] * 4 + [answer("[5, 6, 7, 8]")] * 4
        watched(texts, [GOLD] * 4 + [other] * 4, prompt_id=["p"] * 8)
    assert len(caplog.messages) == 1 and "zero variance" in caplog.messages[0]


def test_a_late_problem_is_said_once(caplog):
    watched = watch(IOU, REWARDS[IOU])
    run(watched, [RIGHT, LOOSE] * 4, calls=10, prompt_id=["p", "p", "q", "q"] * 2)
    assert not caplog.messages
    run(watched, ["a dog"] * 8, calls=30)
    (said,) = caplog.messages
    assert "of the last 256 answers can be read" in said and "`vlrft score" in said
    run(watched, ["a dog"] * 8, calls=120)
    assert caplog.messages == [said]


@pytest.mark.parametrize(
    ("gold", "task", "why"), [("4", "detection", "detection row"), ("some", None, "whole number")]
)
def test_a_reward_that_scores_nothing_in_the_first_steps_says_so(gold, task, why, caplog):
    watched = watch("vlrft_counting", REWARDS["vlrft_counting"])
    for _ in range(5):
        watched([answer("4")] * 4, [gold] * 4, task=[task] * 4)
    watched([answer("4")] * 4, ["4"] * 4)
    (said,) = [text for text in caplog.messages if "got a score" in text]
    assert said.startswith("vlrft_counting: ") and "12 completions" in said and why in said


def test_a_failing_check_never_stops_a_step(monkeypatch, caplog):
    def explain(*_, **__):
        raise RuntimeError("a fault")

    monkeypatch.setattr(watching, "explain", explain)
    run(watch(IOU, REWARDS[IOU]), ["[100, 100, 200, 200]"] * 2)
    assert len(caplog.messages) == 1 and IOU in caplog.messages[0]
