"""What is read from a model's text, case by case."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.box_forms import EMPTY, FORMS
from support.hostile import answered as completion

from swift_vlrft.parsing import answers, boxes
from swift_vlrft.parsing.answers import normalise, read, read_boxes
from swift_vlrft.rewards import REWARDS

BOX = (254.0, 303.0, 291.0, 365.0)
BOX_REWARDS = [n for n, reward in REWARDS.items() if reward.task and reward.task.has_boxes]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_is_full_marks_as_answer_and_as_gold(form):
    written = form.write([BOX], None)
    plain = "[{'Position': [254, 303, 291, 365], 'Confidence': 1}]"
    for answer, gold in ((written, plain), (plain, written), (plain, completion(written))):
        for name in BOX_REWARDS:
            # the two that ask for a confidence pay in full only where one can be said
            unsaid = name in ("vlrft_detection_confidence", "vlrft_paper_confidence")
            unsaid &= read(completion(answer)).boxes.confidences == [None]
            assert REWARDS[name]([completion(answer)], [gold]) == [0.0 if unsaid else 1.0], name


start, side = st.integers(-50, 900), st.integers(1, 400) | st.sampled_from([0.5, 12.25, 99.0])
box = st.builds(lambda x, y, w, h: (x, y, x + w, y + h), start, start, side, side)


@settings(max_examples=50)
@given(
    st.lists(box, min_size=1, max_size=4),
    st.sampled_from([None, "dog", "[1, 2, 3, 4]", "a (1,2) b"]),
)
def test_boxes_written_in_any_form_read_back_the_same(boxes, name):
    for form in FORMS:
        several = boxes if form.several else boxes[:1]
        was_read = read_boxes(form.write(several, name if form.labelled else None))
        assert was_read.boxes == several, form
        if form.labelled and name:
            assert was_read.labels == [normalise(name)] * len(several), form


@pytest.mark.parametrize("text", EMPTY)
def test_every_form_of_the_empty_set_as_answer_and_as_gold(text):
    for answer, gold in ((text, "No Objects"), ("[]", text), (text, completion(text))):
        for name in BOX_REWARDS:
            if REWARDS[name].task.name == "detection":
                assert REWARDS[name]([completion(answer)], [gold]) == [1.0], name
            else:
                assert REWARDS[name]([completion(answer)], ["[1, 2, 3, 4]"]) == [0.0]


def test_a_text_is_parsed_once_however_many_rewards_look(monkeypatch):
    parsed = []
    real = boxes.without_wrappers
    monkeypatch.setattr(boxes, "without_wrappers", lambda text: parsed.append(text) or real(text))
    completions = [completion(f"[{n}, 0, 991, 1]") for n in range(40)]
    gold = ["[41, 0, 991, 2]"] * 40
    for name in ("vlrft_detection_iou", "vlrft_detection_confidence", "vlrft_detection_format"):
        REWARDS[name](completions, gold)
    assert len([text for text in parsed if "991, 1]" in text]) == 40
    assert len([text for text in parsed if "991, 2]" in text]) <= 1  # the gold, once per text


def test_the_cache_is_bounded_in_count_and_in_characters():
    for n in range(20_000):
        read(f"<answer>bounded {n}</answer>")
    assert len(answers._cache) <= answers.MAX_CACHED_CHARACTERS / 400
    for n in range(30):
        read(f"<answer>{n}" + "x" * 400_000 + "</answer>")
    read("x" * answers.MAX_CACHED_CHARACTERS)  # with what it is counted, more than fits
    assert sum(map(len, answers._cache)) <= answers.MAX_CACHED_CHARACTERS
    assert sum(len(text) + 400 for text in answers._cache) == answers._cached_characters


def test_the_cache_survives_threads():
    def work(k):
        for n in range(2000):
            read(f"<answer>thread {(n * k) % 3000}</answer>")

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(text) + 400 for text in answers._cache) == answers._cached_characters
