"""What must hold for every answer, tried on generated ones."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from swift_vlrft.geometry.boxes import iou
from swift_vlrft.rewards import REWARDS, grounding, matching

DETECTION = [name for name, reward in REWARDS.items() if reward.task is matching.DETECTION]
GROUNDING = [name for name, reward in REWARDS.items() if reward.task is grounding.GROUNDING]
BOX_REWARDS = DETECTION + GROUNDING
NO_PAPER = [name for name in BOX_REWARDS if "paper" not in name]

corner = st.integers(0, 900)
side = st.integers(1, 400)
box = st.builds(lambda x, y, w, h: [x, y, x + w, y + h], corner, corner, side, side)
confidence = st.none() | st.floats(0, 1) | st.sampled_from([0, 1, 0.5, -1, 2, "0.5", "NaN", True])
label = st.sampled_from([None, "dog", "cat"])
invalid = st.sampled_from(
    [[1, 2, 3], [9, 9, 1, 1], [0, 0, 0, 9], ["nan", 0, 1, 1], [], None, "box"]
)


@st.composite
def detections(draw, least=0, most=6):
    """Predictions, many of them near a gold box so that matches are contested."""
    gold = draw(st.lists(box, min_size=1, max_size=5))
    named = draw(st.booleans())
    golds = [
        {"bbox_2d": b} | ({"label": draw(st.sampled_from(["dog", "cat"]))} if named else {})
        for b in gold
    ]
    near = st.builds(
        lambda b, d: [b[0] + d[0], b[1] + d[1], b[2] + d[2], b[3] + d[3]],
        st.sampled_from(gold),
        st.tuples(*[st.integers(-15, 15)] * 4),
    )
    prediction = st.fixed_dictionaries(
        {"bbox_2d": near | box | invalid, "score": confidence, "label": label}
    )
    predictions = draw(st.lists(prediction, min_size=least, max_size=most))
    return predictions, golds


def score(name, predictions, golds):
    if name in GROUNDING:
        golds = golds[:1]
    return REWARDS[name]([text_of(predictions)], [repr(golds)])[0]


def text_of(predictions):
    return f"<think>t</think><answer>{predictions!r}</answer>"


def is_box(value):
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(type(v) in (int, float) for v in value)
        and value[0] < value[2]
        and value[1] < value[3]
    )


@pytest.mark.parametrize("name", BOX_REWARDS)
@settings(max_examples=60, deadline=None)
@given(case=detections(), seed=st.integers(0, 1000))
def test_the_order_of_boxes_does_not_matter(name, case, seed):
    predictions, golds = case
    if "paper" in name:  # of equal confidences, and of repeated positions, the first one counts
        stated = [p["score"] for p in predictions]
        assume(all(type(c) is float for c in stated) and len(set(stated)) == len(stated))
        assume(len({str(p["bbox_2d"]) for p in predictions}) == len(predictions))
    shuffled = random.Random(seed).sample(predictions, len(predictions))
    assert score(name, shuffled, golds) == pytest.approx(score(name, predictions, golds), abs=1e-9)


@pytest.mark.parametrize("name", NO_PAPER)
@settings(max_examples=100, deadline=None)
@given(
    case=detections(),
    wrong=st.tuples(box | invalid, confidence, label),
    place=st.integers(0, 6),
)
def test_adding_a_wrong_box_never_raises_the_score(name, case, wrong, place):
    predictions, golds = case
    if name in GROUNDING:
        golds = golds[:1]
        assume(predictions)  # GIoU pays a lone box for being near, and no box at all nothing
    if is_box(wrong[0]):
        # Under IoU 0.5 a box detects nothing; for grounding, a wrong box overlaps nothing.
        limit = 1e-12 if name in GROUNDING else 0.5
        assume(all(iou(tuple(wrong[0]), tuple(g["bbox_2d"])) < limit for g in golds))
    added = {"bbox_2d": wrong[0], "score": wrong[1], "label": wrong[2]}
    more = [*predictions[:place], added, *predictions[place:]]
    assert score(name, more, golds) <= score(name, predictions, golds) + 1e-9


@pytest.mark.parametrize("name", [n for n in NO_PAPER if n in DETECTION])
@settings(max_examples=60, deadline=None)
@given(case=detections(least=1), pick=st.integers(0, 5), c=confidence)
def test_repeating_a_box_does_not_raise_the_score(name, case, pick, c):
    predictions, golds = case
    copy = predictions[pick % len(predictions)]
    if "map" in name:  # a ranking cannot tell a repeat from a better-ranked right box
        c = copy["score"]
    more = [*predictions, {**copy, "score": c}]
    # A repeat may find a second gold box of its own; then it is not a wrong one.
    near = sum(
        is_box(copy["bbox_2d"]) and iou(tuple(copy["bbox_2d"]), tuple(g["bbox_2d"])) >= 0.5
        for g in golds
    )
    assume(near <= 1)
    assert score(name, more, golds) <= score(name, predictions, golds) + 1e-9


@pytest.mark.parametrize("name", DETECTION)
@settings(max_examples=40, deadline=None)
@given(case=detections())
def test_the_gold_answer_with_confidence_one_scores_exactly_one(name, case):
    golds = case[1]
    if "paper" in name:  # the paper drops repeats of a position
        assume(len({tuple(g["bbox_2d"]) for g in golds}) == len(golds))
    assert score(name, [{**g, "score": 1} for g in golds], golds) == 1.0


@pytest.mark.parametrize("name", GROUNDING)
@settings(max_examples=40, deadline=None)
@given(b=box)
def test_the_gold_box_scores_exactly_one(name, b):
    assert score(name, [{"bbox_2d": b}], [{"bbox_2d": b}]) == 1.0


@pytest.mark.parametrize("name", BOX_REWARDS)
@settings(max_examples=60, deadline=None)
@given(case=detections(), sx=st.floats(0.01, 30), sy=st.floats(0.01, 30))
def test_scaling_both_sides_per_axis_changes_nothing(name, case, sx, sy):
    if "paper" in name:  # strictly above 0.5: rounding decides at 0.5 itself
        assume(all(not is_box(p["bbox_2d"]) or clear_of_half(p, case[1]) for p in case[0]))

    def scaled(items):
        return [
            {**p, "bbox_2d": [v * (sy if n % 2 else sx) for n, v in enumerate(p["bbox_2d"])]}
            if is_box(p["bbox_2d"])
            else p
            for p in items
        ]

    predictions, golds = case
    assert score(name, scaled(predictions), scaled(golds)) == pytest.approx(
        score(name, predictions, golds), abs=1e-6
    )


def clear_of_half(prediction, golds):
    overlaps = [iou(tuple(prediction["bbox_2d"]), tuple(g["bbox_2d"])) for g in golds]
    return all(abs(overlap - 0.5) > 1e-6 for overlap in overlaps)


@given(probability=st.floats(0.0, 1.0), stated=st.floats(0.0, 1.0))
def test_the_true_probability_is_the_best_confidence_to_state(probability, stated):
    """One box is certain; another is right with ``probability``: the score to expect."""
    golds = [{"bbox_2d": [0, 0, 100, 100]}, {"bbox_2d": [500, 500, 600, 600]}]

    def expected(c):
        sure = {"bbox_2d": [0, 0, 100, 100], "score": 1}
        right = [sure, {"bbox_2d": [500, 500, 600, 600], "score": c}]
        wrong = [sure, {"bbox_2d": [700, 700, 800, 800], "score": c}]
        name = "vlrft_detection_confidence"
        return probability * score(name, right, golds) + (1 - probability) * score(
            name, wrong, golds
        )

    assert expected(stated) <= expected(probability) + 1e-12
    if abs(stated - probability) > 1e-3:
        assert expected(stated) < expected(probability)


ANSWERS = {
    "detection": ("[{'Position': [0, 0, 90, 90], 'Confidence': 0.5}]", "[[0, 0, 100, 100]]"),
    "grounding": ("(0,0),(90,90)", "[0, 0, 100, 100]"),
    "classification": ("tulip", "tulip"),
    "counting": ("3", "4"),
    "choice": ("A. cat", "A"),
    "yes_no": ("so: no", "no"),
    "pointing": ("[[50, 50], [900, 900]]", "[[0, 0, 100, 100]]"),
    "ocr": ("Grand Hotel", "Grand Hôtel"),
    "number": ("$12.50", "12.5"),
    "list": ("red, blue", '["blue", "green"]'),
    "ordering": ("a, c, b", "a, b, c"),
}
around = st.lists(
    st.sampled_from(
        [
            "<think>",
            "<answer>",
            "</answer>",
            "[1, 2, 3, 4]",
            "tulip",
            "A",
            "yes",
            "4",
            "{'Position'",
            "\x00",
        ]
    )
    | st.text(max_size=8),
    max_size=8,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(before=around, closed=st.booleans(), after=around)
def test_nothing_outside_the_last_answer_changes_a_content_reward(before, closed, after):
    assume("</answer>" not in after.partition("<answer>")[2])  # that would be another answer
    assume("</think>" not in before + after)
    for name, reward in REWARDS.items():
        task = reward.task
        if task is None or name.endswith("format"):
            continue
        text, gold = ANSWERS[task.name]
        alone = f"<think>t</think><answer>{text}</answer>"
        dressed = before + ("</think>" if closed else "") + f"<answer>{text}</answer>" + after
        assert REWARDS[name]([dressed], [gold]) == REWARDS[name]([alone], [gold])


@settings(max_examples=300, deadline=None)
@given(completion=st.text(max_size=60) | around, inner=st.text(max_size=40) | around)
def test_every_score_of_any_text_is_finite_and_in_range(completion, inner):
    for name, function in REWARDS.items():
        task = REWARDS[name].task
        gold = ANSWERS[task.name][1] if task else ""
        values = function([completion, f"<answer>{inner}</answer>"], [gold, gold])
        assert len(values) == 2
        assert all(0.0 <= value <= 1.0 for value in values)
