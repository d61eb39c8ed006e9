"""What must hold for every answer, tried on generated ones."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.contract_rows import right, two_rows

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.geometry.boxes import iou
from swift_vlrft.parsing.answers import answer_text
from swift_vlrft.rewards import REWARDS, grounding, matching

DETECTION = [name for name, reward in REWARDS.items() if reward.task is matching.DETECTION]
GROUNDING = [name for name, reward in REWARDS.items() if reward.task is grounding.GROUNDING]
BOX_REWARDS = DETECTION + GROUNDING

corner, side = st.integers(0, 900), st.integers(1, 400)
box = st.builds(lambda x, y, w, h: [x, y, x + w, y + h], corner, corner, side, side)
confidence = st.none() | st.floats(0, 1) | st.sampled_from([0, 1, 0.5, -1, 2, "0.5", "NaN", True])
label = st.sampled_from([None, "dog", "cat"])
invalid = st.sampled_from(
    [[1, 2, 3], [9, 9, 1, 1], [0, 0, 0, 9], ["nan", 0, 1, 1], [], None, "box"]
)


@st.composite
def detections(draw, least=0):
    """Predictions, many of them near a gold box so that matches are contested."""
    gold = draw(st.lists(box, min_size=1, max_size=5))
    named = draw(st.booleans())
    golds = [
        {"bbox_2d": b} | ({"label": draw(st.sampled_from(["dog", "cat"]))} if named else {})
        for b in gold
    ]
    near = st.builds(
        lambda b, shifts: [v + shift for v, shift in zip(b, shifts, strict=True)],
        st.sampled_from(gold),
        st.tuples(*[st.integers(-15, 15)] * 4),
    )
    prediction = st.fixed_dictionaries(
        {"bbox_2d": near | box | invalid, "score": confidence, "label": label}
    )
    return draw(st.lists(prediction, min_size=least, max_size=6)), golds


def score(name, predictions, golds):
    if name in GROUNDING:
        golds = golds[:1]
    completion = f"<think>t</think><answer>{predictions!r}</answer>"
    return REWARDS[name]([completion], [repr(golds)])[0]


def is_box(value):
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(type(v) in (int, float) for v in value)
        and value[0] < value[2]
        and value[1] < value[3]
    )


def overlaps(value, golds):
    return [iou(tuple(value), tuple(g["bbox_2d"])) for g in golds] if is_box(value) else []


@pytest.mark.slow
@settings(max_examples=150)
@given(detections(), st.integers(0, 1000), st.floats(0.01, 30), st.floats(0.01, 30))
def test_neither_order_nor_scale_of_the_boxes_matters(case, seed, sx, sy):
    def scaled(items):
        return [
            {**p, "bbox_2d": [v * (sy if n % 2 else sx) for n, v in enumerate(p["bbox_2d"])]}
            if is_box(p["bbox_2d"])
            else p
            for p in items
        ]

    for name in BOX_REWARDS:
        predictions, golds = case
        if "paper" in name:
            # Of equal confidences, and of repeated positions, the first one counts; and rounding
            # decides about an overlap of 0.5, as more than that is asked for.
            distinct = {str(p["bbox_2d"]): p for p in predictions}.values()
            predictions = [
                {**p, "score": (n + 1) / 10}
                for n, p in enumerate(distinct)
                if all(abs(overlap - 0.5) > 1e-6 for overlap in overlaps(p["bbox_2d"], golds))
            ]
        before = score(name, predictions, golds)
        shuffled = random.Random(seed).sample(predictions, len(predictions))
        assert score(name, shuffled, golds) == pytest.approx(before, abs=1e-9), name
        resized = score(name, scaled(predictions), scaled(golds))
        assert resized == pytest.approx(before, abs=1e-6), name


@pytest.mark.slow
@settings(max_examples=200)
@given(detections(), st.tuples(box | invalid, confidence, label), st.integers(0, 6))
def test_adding_a_wrong_box_never_raises_the_score(case, wrong, place):
    predictions, golds = case
    added = {"bbox_2d": wrong[0], "score": wrong[1], "label": wrong[2]}
    more = [*predictions[:place], added, *predictions[place:]]
    for name in BOX_REWARDS:
        # Under IoU 0.5 a box detects nothing; for grounding, a wrong box overlaps nothing.
        limit, right = (1e-12, golds[:1]) if name in GROUNDING else (0.5, golds)
        limit = 1e-12 if "soft" in name else limit
        if "paper" in name or any(overlap >= limit for overlap in overlaps(wrong[0], right)):
            continue
        if name in GROUNDING and not predictions:
            continue  # GIoU pays a lone box for being near, and no box at all nothing
        assert score(name, more, golds) <= score(name, predictions, golds) + 1e-9, name


@pytest.mark.slow
@settings(max_examples=100)
@given(detections(least=1), st.integers(0, 5), confidence)
def test_repeating_a_box_does_not_raise_the_score(case, pick, stated):
    predictions, golds = case
    copy = predictions[pick % len(predictions)]
    # A repeat may find a second gold box of its own; then it is not a wrong one.
    assume(sum(overlap >= 0.5 for overlap in overlaps(copy["bbox_2d"], golds)) <= 1)
    for name in DETECTION:
        if "paper" not in name and "soft" not in name:
            # A ranking cannot tell a repeat from a better-ranked right box.
            added = copy if "map" in name else {**copy, "score": stated}
            before = score(name, predictions, golds)
            assert score(name, [*predictions, added], golds) <= before + 1e-9, name


@settings(max_examples=60)
@given(detections())
def test_the_gold_answer_with_confidence_one_scores_exactly_one(case):
    golds = list({str(g["bbox_2d"]): g for g in case[1]}.values())  # the paper drops repeats
    for name in BOX_REWARDS:
        right = case[1] if "paper" not in name else golds
        if name in GROUNDING:
            right = golds[:1]
        assert score(name, [{**g, "score": 1} for g in right], right) == 1.0, name


@given(probability=st.floats(0.0, 1.0), stated=st.floats(0.0, 1.0))
def test_the_true_probability_is_the_best_confidence_to_state(probability, stated):
    """One box is certain; another is right with ``probability``: the score to expect."""
    certain, other, wrong = ([n, n, n + 100, n + 100] for n in (0, 500, 700))
    golds = [{"bbox_2d": certain}, {"bbox_2d": other}]

    def expected(confidence):
        def scored(second):
            said = [{"bbox_2d": certain, "score": 1}, {"bbox_2d": second, "score": confidence}]
            return score("vlrft_detection_confidence", said, golds)

        return probability * scored(other) + (1 - probability) * scored(wrong)

    assert expected(stated) <= expected(probability) + 1e-12
    if abs(stated - probability) > 1e-3:
        assert expected(stated) < expected(probability)


pieces = ["<think>", "<answer>", "</answer>", "[1, 2, 3, 4]", "tulip", "A", "yes", "4", "\x00"]
around = st.lists(st.sampled_from([*pieces, "{'Position'"]) | st.text(max_size=8), max_size=8)
around = around.map("".join)


CONTENT = [name for name, reward in REWARDS.items() if not reward.scores_format]


@pytest.mark.slow
@settings(max_examples=150)
@given(before=around, closed=st.booleans(), after=around)
def test_nothing_outside_the_last_answer_changes_a_content_reward(before, closed, after):
    assume("</answer>" not in after.partition("<answer>")[2])  # that would be another answer
    assume("</think>" not in before + after)
    for name in CONTENT:
        completions, golds = two_rows(name)
        blocks = [f"<answer>{answer_text(completion)}</answer>" for completion in completions]
        dressed = [before + "</think>" * closed + block + after for block in blocks]
        assert REWARDS[name](dressed, golds) == REWARDS[name](blocks, golds), name


@pytest.mark.slow
@settings(max_examples=200)
@given(completion=st.text(max_size=60) | around, inner=st.text(max_size=40) | around)
def test_every_score_of_any_text_is_finite_and_in_range(completion, inner):
    texts = [completion, f"<answer>{inner}</answer>"]
    for name, reward in REWARDS.items():
        scores = reward(texts, [right(name)[1]] * 2)
        assert len(scores) == 2 and all(0.0 <= value <= 1.0 for value in scores), name
        assert explain(name, texts[1], right(name)[1]).score == scores[1], name
