"""Boxes in another format than the gold: 48 made-up answers each, and what they are said to be."""

import random

import pytest
from support.written_boxes import written

from swift_vlrft.diagnostics.readings import BoxFormatCheck
from swift_vlrft.geometry.readings import Reading
from swift_vlrft.parsing.answers import read
from swift_vlrft.rewards import REWARDS

WIDE, HIGH = 640, 480
SEEN = (728, 532)
"""An image of twice that size, as Qwen2.5-VL sees it under the recipes' MAX_PIXELS."""


def placed(rng):
    width, height = rng.uniform(60, 500), rng.uniform(60, 500)
    x, y = rng.uniform(0, 1000 - width), rng.uniform(0, 1000 - height)
    return x, y, x + width, y + height


def read_as(order, unit, size=None):
    size = size or (WIDE, HIGH)
    return lambda box, *_: written(
        [v * s / 1000 for v, s in zip(box, size * 2, strict=True)], Reading(order, unit), size
    )


def problem(answer, gold=lambda box: box, more=None, boxes=1, same=1, rows=48, seed=0):
    """What is said of answers near the gold, written as ``answer(box, row, rng)`` gives them; each
    gold stands in ``same`` rows.
    """
    rng, check = random.Random(seed), BoxFormatCheck()
    for n in range(rows):
        if n % same == 0:
            golds = [placed(rng) for _ in range(boxes)]
        near = [[v + rng.gauss(0, 6) for v in box] for box in golds]
        written = [[round(v, 3) for v in answer(box, n, rng)] for box in near]
        rng.shuffle(written)
        solution = str([{"Position": [round(v, 1) for v in gold(box)]} for box in golds])
        text = f"<answer>{[{'Position': box} for box in written]}</answer>"
        row = {"completion": text, "solution": solution} | (more or {})
        task = REWARDS["vlrft_detection_iou"].task
        check.add_row(task, task.read_gold(solution), read(text), row)
    return check.problem()


SIZED = {"width": WIDE, "height": HIGH}
PIXELS = read_as("xyxy", "pixels")
ASK = ": ask for x1, y1, x2, y2 in the prompt"
CAUSES = {
    "pixels": (PIXELS, {"more": SIZED}, "48 of 48", "in pixels of 640 x 480: use SET:pixels"),
    "pixels of the resized image": (
        read_as("xyxy", "pixels", SEEN),
        {"more": {"width": 2 * WIDE, "height": 2 * HIGH}},
        "48 of 48",
        "pixels of 728 x 532, as qwen2_5_vl sees the image: use SET:pixels",
    ),
    "several boxes": (PIXELS, {"boxes": 4, "more": SIZED}, "192 of 192", "pixels of 640 x 480"),
    "y first": (read_as("yxyx", "norm1000"), {}, "43 of 43", f"{ASK}, or use SET:yx1000"),
    "pixels, y first": (
        read_as("yxyx", "pixels"),
        {"more": SIZED},
        "48 of 48",
        f"corners y1, x1, y2, x2 in pixels of 640 x 480: use SET:pixels, and{ASK[1:]}",
    ),
    "half of them in pixels": (
        lambda b, n, _: PIXELS(b) if n % 2 else b,
        {"more": SIZED},
        "24 of 24",
        "pixels of 640 x 480",
    ),
    "eight answers to each prompt": (read_as("yxyx", "norm1000"), {"same": 8}, "48 of 48", ASK),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_box_format_that_explains_the_answers_is_named(name):
    answer, how, count, said = CAUSES[name]
    found = problem(answer, **how)
    assert found.startswith(f"{count} misplaced boxes match") and said in found


def test_pixels_of_no_known_size_and_unknown_frames_are_not_guessed():
    assert problem(PIXELS) is None
    assert problem(PIXELS, more=SIZED | {"frame": "inches"}) is None


@pytest.mark.parametrize(("boxes", "same"), [(1, 1), (3, 8)])
@pytest.mark.parametrize(
    "answer",
    [
        lambda b, *_: b,
        lambda b, n, rng: placed(rng),
        lambda b, n, rng: PIXELS(placed(rng)),
        lambda b, *_: [100, 150, 400, 480],
        lambda b, *_: [0, 0, 1000, 1000],
        lambda b, *_: [0, 0, WIDE, HIGH],
        lambda b, *_: [0.9 * v for v in b],
    ],
    ids=["right", "random", "in pixels", "constant", "whole", "whole in pixels", "too small"],
)
def test_chance_is_no_cause(answer, boxes, same):
    for seed in range(2):
        assert problem(answer, boxes=boxes, same=same, seed=seed, more=SIZED) is None


def test_few_boxes_have_no_cause():
    assert problem(read_as("yxyx", "norm1000"), rows=7) is None
