"""Boxes and prompts in another frame: the numbers change, and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_vlrft.datasets.build import PROMPT
from swift_vlrft.datasets.frames import View, in_frame

SEEN = {"size": (640, 480), "to_size": (644, 476)}


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        (
            "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>",
            "<answer>[{'Position': [164, 144, 187, 174], 'Confidence': 1}]</answer>",
        ),
        (
            '[{"bbox_2d": ["100", "200", "300", "400"], "label": "1, 2, 3, 4"}]',
            '[{"bbox_2d": [64, 95, 193, 190], "label": "1, 2, 3, 4"}]',
        ),
        ("<answer>(100,200),(300,400)</answer>", "<answer>(64,95),(193,190)</answer>"),
        ("[[100, 200], [300, 400]]", "[[64,95], [193,190]]"),
        ("[100.0, 200, 300, 400]", "[64, 95, 193, 190]"),
        ("<answer>No Objects</answer>", "<answer>No Objects</answer>"),
    ],
)
def test_norm1000_becomes_pixels_of_the_resized_image(gold, expected):
    assert in_frame("p", gold, "norm1000", "pixels", **SEEN)[1] == expected


def test_the_prompt_says_the_frame_where_it_said_one():
    problem, _ = in_frame(PROMPT.format(category="dog"), "[]", "norm1000", "pixels", **SEEN)
    assert "boxes (in pixels, x from 0 to 644 and y from 0 to 476, integer) and conf" in problem
    assert "0 and 1000" not in problem and "confidence (between 0 and 1, with two" in problem
    back, _ = in_frame(problem, "[]", "pixels", "norm1000", **SEEN)
    assert back == PROMPT.format(category="dog")


@pytest.mark.parametrize(
    "said", ["normalized to 0-1000", "in the range [0, 1000]", "from 0 to 1000", "within 0–1000"]
)
def test_other_ways_to_say_norm1000_are_known(said):
    problem, _ = in_frame(f"Give the box, {said}.", "[]", "norm1000", "pixels", **SEEN)
    assert problem == "Give the box, in pixels, x from 0 to 644 and y from 0 to 476."


def test_a_prompt_that_says_nothing_gets_a_sentence():
    problem, _ = in_frame("Where is it?", "[1, 2, 30, 40]", "pixels", "norm1000", **SEEN)
    assert problem == "Where is it?\nCoordinates are whole numbers between 0 and 1000."
    problem, gold = in_frame("Where?", "[64, 48, 320, 240]", "pixels", "pixels", **SEEN)
    assert problem.endswith("in pixels, x from 0 to 644 and y from 0 to 476.")
    assert gold == "[64, 48, 322, 238]"


def test_what_cannot_be_rewritten_is_refused():
    with pytest.raises(ValueError, match="cannot be rewritten"):
        in_frame("p", "[[1, 2, 3]]", "norm1000", "pixels", **SEEN)


coordinate = st.integers(0, 1000)
box = st.tuples(coordinate, coordinate, coordinate, coordinate).filter(
    lambda b: b[0] < b[2] and b[1] < b[3]
)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(box, max_size=5), st.tuples(st.integers(30, 3000), st.integers(30, 3000)))
def test_there_and_back_is_within_one_pixel(boxes, size):
    view = View("qwen2_5_vl", 3136, 1_003_520)
    if max(size) > 100 * min(size):
        return
    seen = view.size(*size)
    gold = str(
        [{"Position": list(b), "Confidence": 1, "label": "[1, 2, 3, 4]x"[9:]} for b in boxes]
    )
    sizes = {"size": size, "to_size": seen}
    problem, there = in_frame("0-1000", gold, "norm1000", "pixels", **sizes)
    _, back = in_frame(problem, there, "pixels", "norm1000", size=seen, to_size=seen)
    import ast

    for before, after in zip(boxes, ast.literal_eval(back), strict=True):
        for axis in (0, 1):
            for i in (axis, axis + 2):
                off = abs(before[i] - after["Position"][i]) * seen[axis] / 1000
                assert off <= 1.0
