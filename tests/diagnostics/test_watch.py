"""The checks in training: one clear warning a problem, samples as JSON lines, scores untouched."""

import inspect
import json
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest

from swift_vlrft.diagnostics import watch as watching
from swift_vlrft.diagnostics.watch import watch
from swift_vlrft.rewards import REWARDS

GOLD = "<answer>[{'Position': [100, 100, 200, 200], 'Confidence': 1}]</answer>"
IOU = "vlrft_detection_iou"


def answer(text):
    return f"<think>t</think><answer>{text}</answer>"


@pytest.fixture(autouse=True)
def fresh(monkeypatch, caplog):
    monkeypatch.setattr(watching, "_warned", set())
    monkeypatch.delenv("VLRFT_LOG_SAMPLES", raising=False)
    caplog.set_level(logging.WARNING, logger="swift_vlrft")


def run(function, texts, calls=5, **columns):
    for _ in range(calls):
        function([answer(text) for text in texts], [GOLD] * len(texts), **columns)


def test_a_watched_reward_is_the_same_function_to_ms_swift():
    for name, function in REWARDS.items():
        watched = watch(name, function)
        assert inspect.isfunction(watched)
        assert watched.__name__ == name
        texts, gold = [answer("[100, 100, 200, 200]"), "?"], ["[100, 100, 200, 200]"] * 2
        task = ["grounding"] * 2
        assert watched(texts, gold, task=task) == function(texts, gold, task=task)


def test_errors_of_the_caller_pass_through():
    with pytest.raises(ValueError, match="solution"):
        watch(IOU, REWARDS[IOU])(["a"])


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["[0.1, 0.1, 0.2, 0.2]"] * 8, "all coordinates under 1"),
        (["[900, 500, 1400, 1100]"] * 8, "reach beyond 1000"),
        (["a dog"] * 6 + ["[1, 2, 3, 4]"] * 2, "only 25% of 24 answers can be read"),
    ],
)
def test_one_warning_for_each_problem(texts, words, caplog):
    rewards = [watch(name, REWARDS[name]) for name in (IOU, "vlrft_detection_confidence")]
    for reward in rewards:
        run(reward, texts)
    assert len(caplog.messages) == 1
    assert words in caplog.messages[0]
    assert IOU in caplog.messages[0]


def test_zero_variance_is_seen_within_groups(caplog):
    texts = ["[100, 100, 200, 200]"] * 4 + ["[1, 2, 3, 4]"] * 4
    run(watch(IOU, REWARDS[IOU]), texts)  # no groups given: nothing to say
    assert not caplog.messages
    run(watch(IOU, REWARDS[IOU]), texts, prompt_id=["p"] * 3 + ["q"] * 5)  # q has variance
    assert not caplog.messages
    run(watch(IOU, REWARDS[IOU]), texts, prompt_id=["p"] * 4 + ["q"] * 4)
    assert len(caplog.messages) == 1
    assert "zero variance within every one of" in caplog.messages[0]


def test_pictures_that_share_a_prompt_are_groups_of_their_own(caplog):
    other = "[{'Position': [1, 2, 3, 4]}]"
    texts = [answer("[100, 100, 200, 200]")] * 8
    watched = watch(IOU, REWARDS[IOU])
    for _ in range(3):  # ms-swift's prompt_id is the prompt's text: all 1 for one, all 0 for other
        watched(texts, [GOLD] * 4 + [other] * 4, prompt_id=["p"] * 8)
    assert len(caplog.messages) == 1 and "zero variance" in caplog.messages[0]


def test_parts_of_groups_and_other_ranks_say_nothing(caplog, monkeypatch):
    texts = ["[100, 100, 200, 200]"] * 2 + ["[1, 2, 3, 4]"] * 2
    run(watch(IOU, REWARDS[IOU]), texts, prompt_id=["p"] * 2 + ["q"] * 2)
    assert not caplog.messages
    monkeypatch.setenv("RANK", "1")
    run(watch(IOU, REWARDS[IOU]), ["a dog"] * 16)
    assert not caplog.messages


def test_a_good_run_and_a_late_problem_are_not_warned_of(caplog):
    watched = watch(IOU, REWARDS[IOU])
    good = ["[100, 100, 200, 200]", "[100, 100, 200, 190]"] * 4
    run(watched, good, calls=10, prompt_id=["p", "p", "q", "q"] * 2)
    run(watched, ["a dog"] * 8, calls=10)
    assert not caplog.messages


def test_the_first_steps_alone_are_not_judged(caplog):
    run(watch(IOU, REWARDS[IOU]), ["a dog"] * 100, calls=2)
    assert not caplog.messages


def test_samples_are_logged_with_score_and_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("VLRFT_LOG_SAMPLES", str(tmp_path / "samples"))
    monkeypatch.setenv("RANK", "3")
    watched = watch(IOU, REWARDS[IOU])
    state = SimpleNamespace(global_step=7, max_steps=100)
    texts = [answer("[100, 100, 200, 141]"), "\ud800\x00", answer("4")]
    watched(texts, [GOLD] * 3, task=["detection", None, "counting"], trainer_state=state)
    watched(texts[:1], [GOLD], prompt_id=["p"], trainer_state=state)
    (file,) = (tmp_path / "samples").iterdir()
    assert file.name.startswith("samples-rank3-")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["code"] for line in lines] == ["low_iou", "no_answer", "low_iou"]
    assert lines[0]["reason"] == "best IoU 0.41 under 0.5"
    assert (lines[0]["step"], lines[0]["reward"], lines[0]["score"]) == (7, IOU, 0.0)
    assert lines[1]["completion"] == "\ud800\x00"
    assert lines[2]["prompt_id"] == "p"


def test_several_processes_log_side_by_side(tmp_path):
    code = (
        "from swift_vlrft.rewards import REWARDS\n"
        "from swift_vlrft.diagnostics.watch import watch\n"
        f"f = watch({IOU!r}, REWARDS[{IOU!r}])\n"
        f"for n in range(50): f(['<answer>' + 'x' * 5000 + '</answer>'] * 4, [{GOLD!r}] * 4)\n"
    )
    env = {"VLRFT_LOG_SAMPLES": str(tmp_path), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    assert [len([json.loads(line) for line in f.read_text().splitlines()]) for f in files] == [
        200
    ] * 3


def test_a_failing_check_never_stops_a_step(tmp_path, monkeypatch, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("VLRFT_LOG_SAMPLES", str(blocked / "samples"))
    run(watch(IOU, REWARDS[IOU]), ["[100, 100, 200, 200]"] * 2)
    assert len(caplog.messages) == 1
    assert "Scores are not affected" in caplog.messages[0]
