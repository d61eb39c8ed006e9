"""A reward is a record: what it is stands in fields, not in its name."""

from dataclasses import FrozenInstanceError

import pytest

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.rewards import REWARDS, TASK_NAMES
from swift_vlrft.rewards.contract import Reward, reward
from swift_vlrft.rewards.counting import COUNTING


@reward(COUNTING, needs=("solution", "scale"), takes=("tolerance",))
def vlrft_near_format(answer: Answer, gold: float, scale: float, tolerance: float | None) -> float:
    """1 where the count is near; the name says "format", the record does not."""
    return float(
        answer.number is not None and abs(answer.number - gold) <= (tolerance or 0) * scale
    )


def test_a_new_reward_is_one_function():
    texts = ["<answer>4</answer>", "<answer>6</answer>", "<answer>6</answer>"]
    golds = ["4", "5", "five"]
    assert vlrft_near_format(texts, golds, scale=[1, 1, 1]) == [1.0, 0.0, None]
    assert vlrft_near_format(texts, golds, scale=[1, 1, 1], tolerance=[1, 1, 1]) == [1.0, 1.0, None]
    assert vlrft_near_format(texts, golds, scale=[1] * 3, task=["counting", "ocr", None])[1] is None
    assert vlrft_near_format.__name__ == "vlrft_near_format"
    assert vlrft_near_format.__doc__.startswith("1 where the count is near")
    assert not vlrft_near_format.scores_format


def test_a_column_that_a_reward_needs_is_asked_for():
    with pytest.raises(ValueError, match=r"vlrft_near_format: the column 'scale' is missing"):
        vlrft_near_format(["<answer>4</answer>"], ["4"])
    with pytest.raises(ValueError, match=r"vlrft_near_format: completions is one string"):
        vlrft_near_format("<answer>4</answer>", ["4"], scale=[1])


def test_a_record_is_not_changed():
    with pytest.raises(FrozenInstanceError):
        vlrft_near_format.task = None


def names(field):
    return {name.removeprefix("vlrft_") for name in REWARDS if getattr(REWARDS[name], field)}


def test_what_the_rewards_say_of_themselves():
    assert all(isinstance(r, Reward) and r.__name__ == name for name, r in REWARDS.items())
    assert all(r.__doc__ and "completions" not in r.__doc__ for r in REWARDS.values())
    maps = {"detection_map", "detection_map50"}
    assert names("reads_confidence") == maps | {"detection_confidence", "paper_confidence"}
    assert names("scores_format") == {"format", "detection_format"}
    assert names("changes_in_training") == {"detection_iou_dynamic"}
    assert names("takes") == {"classification", "number", "ocr", "ocr_exact"}
    assert names("recommended") == {n[6:] for n in REWARDS} - {"paper_iou", "paper_confidence"}
    assert {n for n, r in REWARDS.items() if not r.needs} == {
        "vlrft_format",
        "vlrft_detection_format",
    }
    assert [name for name, task in TASK_NAMES.items() if task.has_boxes] == [
        "detection",
        "grounding",
    ]
