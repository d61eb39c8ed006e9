"""Boxes in another format than the gold: 48 made-up answers each, and what they are said to be."""

import random

import pytest

from swift_vlrft.diagnostics.readings import BoxFormatCheck
from swift_vlrft.parsing.answers import read
from swift_vlrft.rewards import REWARDS

WIDE, HIGH = 640, 480
SEEN = (728, 532)
"""An image of twice that size, as Qwen2.5-VL sees it under the recipes' MAX_PIXELS."""


def placed(rng):
    width, height = rng.uniform(60, 500), rng.uniform(60, 500)
    x, y = rng.uniform(0, 1000 - width), rng.uniform(0, 1000 - height)
    return x, y, x + width, y + height


def scaled(box, width, height):
    return [v * side / 1000 for v, side in zip(box, (width, height) * 2, strict=True)]


def to_yx(box):
    return [box[1], box[0], box[3], box[2]]


def to_sizes(box):
    return [box[0], box[1], box[2] - box[0], box[3] - box[1]]


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


PIXELS = "pixels of 640 x 480: use SET:pixels"
CAUSES = {
    "pixels": (lambda b, *_: scaled(b, WIDE, HIGH), {}, "pixels of 6"),
    "pixels, the size known": (
        lambda b, *_: scaled(b, WIDE, HIGH),
        {"more": {"width": WIDE, "height": HIGH}},
        PIXELS,
    ),
    "pixels of the resized image": (
        lambda b, *_: scaled(b, *SEEN),
        {"more": {"width": 2 * WIDE, "height": 2 * HIGH}},
        "pixels of 728 x 532, as qwen2_5_vl sees the image: use SET:pixels",
    ),
    "pixels, several boxes": (lambda b, *_: scaled(b, WIDE, HIGH), {"boxes": 4}, "pixels of 6"),
    "y first": (lambda b, *_: to_yx(b), {}, "as y1, x1, y2, x2: ask for x1, y1, x2, y2"),
    "width and height": (lambda b, *_: to_sizes(b), {}, "as x, y, width, height: ask for x1,"),
    "shares": (lambda b, *_: scaled(b, 1, 1), {}, "shares from 0 to 1: use SET:unit"),
    "pixels, y first": (
        lambda b, *_: to_yx(scaled(b, WIDE, HIGH)),
        {},
        "as y1, x1, y2, x2 in pixels of 6",
    ),
    "thousandths, the gold in pixels of no known size": (
        lambda b, *_: b,
        {"gold": lambda b: scaled(b, WIDE, HIGH)},
        "thousandths, the gold as pixels of 6",
    ),
    "thousandths, the gold in pixels of a known size": (
        lambda b, *_: b,
        {
            "gold": lambda b: scaled(b, WIDE, HIGH),
            "more": {"frame": "pixels", "width": WIDE, "height": HIGH},
        },
        "as thousandths: use SET:norm1000",
    ),
    "thousandths, the gold in pixels of a large image": (
        lambda b, *_: b,
        {"gold": lambda b: scaled(b, 1920, 1080)},
        "thousandths, the gold as pixels of 19",
    ),
    "half of them in pixels": (
        lambda b, n, _: scaled(b, WIDE, HIGH) if n % 2 else b,
        {},
        "24 of 24 misplaced boxes match (mean IoU 0.9",
    ),
    "eight answers to each prompt": (lambda b, *_: to_yx(b), {"same": 8}, "as y1, x1, y2, x2"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_box_format_that_explains_the_answers_is_named(name):
    answer, how, said = CAUSES[name]
    assert said in problem(answer, **how)


def test_two_causes_are_both_named():
    said = problem(lambda b, n, _: to_yx(b) if n % 2 else to_sizes(b))
    assert said.count(" of 4") == 2 and "y1, x1, y2, x2" in said and "width, height" in said


@pytest.mark.parametrize("same", [1, 8])
@pytest.mark.parametrize("boxes", [1, 3])
@pytest.mark.parametrize(
    "answer",
    [
        lambda b, *_: b,
        lambda b, n, rng: placed(rng),
        lambda b, n, rng: scaled(placed(rng), WIDE, HIGH),
        lambda b, *_: [100, 150, 400, 480],
        lambda b, *_: [0, 0, 1000, 1000],
        lambda b, *_: [0, 0, WIDE, HIGH],
        lambda b, *_: [0.9 * v for v in b],
    ],
    ids=["right", "random", "in pixels", "constant", "whole", "whole in pixels", "too small"],
)
def test_chance_is_no_cause(answer, boxes, same):
    for seed in range(5):
        assert problem(answer, boxes=boxes, same=same, seed=seed) is None


def test_one_answer_to_golds_that_are_all_alike_is_no_evidence():
    def moved(box):
        return [v + (box[0] - 500) / 20 for v in (300, 300, 700, 700)]

    assert problem(lambda b, *_: scaled((300, 300, 700, 700), WIDE, HIGH), gold=moved) is None


def test_few_boxes_have_no_cause():
    assert problem(lambda b, *_: to_yx(b), rows=7) is None


def test_what_models_write_raises_nothing():
    check = BoxFormatCheck()
    huge = "9" * 400
    for text in (
        f"[{huge}, 1, 2, 3]",
        "[NaN, 1, 2, 3]",
        "[[1, 2], [3]]",
        "[0, 0, 0, 0]",
        "",
        "[-1e308, 0, 1e308, 1]",
    ):
        for gold in ("[1, 2, 3, 4]", "No Objects", "[0, 0, 1, 1]", "a"):
            for more in ({}, {"width": 0, "height": "x"}, {"images": ["none.png"]}):
                row = {"completion": f"<answer>{text}</answer>", "solution": gold} | more
                for name in ("vlrft_grounding_iou", "vlrft_detection_iou", "vlrft_pointing"):
                    task = REWARDS[name].task
                    if (golds := task.read_gold(gold)) is not None:
                        check.add_row(task, golds, read(row["completion"]), row)
    assert check.problem() is None or isinstance(check.problem(), str)
