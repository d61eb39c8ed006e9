"""COCO's average precision: the numbers are pycocotools's, and those of resampled images follow."""

import random

import numpy as np
import pytest
from scored import AP_NAMES, pycocotools_evaluator

from swift_vlrft.evaluation.coco import coco_scores


def drawn_set(seed: int, images: int = 40, categories: int = 5, crowds: bool = True):
    """Gold and detections near it, beside it, doubled, with equal scores, on crowds."""
    rng = random.Random(seed)
    gold, predicted = [], []
    for image in range(1, images + 1):
        for category in range(1, categories + 1):
            place = {"image_id": image, "category_id": category}
            for _ in range(rng.choice((0, 0, 1, 2, 5))):
                side = rng.choice((10, 50, 200))
                box = [rng.uniform(0, 400), rng.uniform(0, 400)]
                box += [rng.uniform(0.5, 1.5) * side, rng.uniform(0.5, 1.5) * side]
                area = box[2] * box[3] * rng.uniform(0.5, 1.0)
                crowd = int(crowds and rng.random() < 0.1)
                gold.append(place | {"bbox": box, "area": area, "iscrowd": crowd})
                for _ in range(rng.choice((0, 1, 1, 1, 3))):
                    slip = rng.choice((0.0, 0.05, 0.2, 0.5))
                    moved = [v + rng.uniform(-slip, slip) * side for v in box]
                    moved[2:] = [max(1.0, v) for v in moved[2:]]
                    predicted.append(place | {"bbox": moved, "score": round(rng.random(), 1)})
            if rng.random() < 0.2:
                far = [rng.uniform(500, 600), 500.0, 20.0, 20.0]
                predicted.append(place | {"bbox": far, "score": 0.9})
    return gold, predicted, list(range(1, images + 1)), list(range(1, categories + 1))


def by_order(images):
    return {image: n for n, image in enumerate(images)}


@pytest.mark.parametrize("seed", range(3))
def test_average_precision_is_that_of_pycocotools(seed):
    drawn = drawn_set(seed)
    images, categories = drawn[2:]
    expected = pycocotools_evaluator(*drawn)
    scores = coco_scores(*drawn, by_order(images))
    means = [scores.mean[name] for name in AP_NAMES]
    assert means == pytest.approx(list(expected.stats[:6]), abs=1e-6)
    for n, category in enumerate(categories):
        of_category = expected.eval["precision"][:, :, n, 0, 2]
        named = {"AP": of_category.mean(), "AP50": of_category[0].mean()}
        for name, value in named.items():
            assert scores.by_category[category][name] == pytest.approx(value, abs=1e-6)
    every_image_once = scores.resampled(np.ones((2, len(images))))
    for name in ("AP", "AP50"):
        assert every_image_once[name] == pytest.approx([scores.mean[name]] * 2, abs=1e-6)


def test_an_image_drawn_twice_counts_as_two_images():
    gold, predicted, images, categories = drawn_set(3, images=8)
    counts = [2, 0, 1, 3, 0, 1, 1, 0]
    scores = coco_scores(gold, predicted, images, categories, by_order(images))
    resampled = scores.resampled(np.array([counts], float))
    copies = [i * 10 + turn for i, n in zip(images, counts, strict=True) for turn in range(n)]
    copied = [
        [box | {"image_id": one} for one in copies for box in side if box["image_id"] == one // 10]
        for side in (gold, predicted)
    ]
    # Equal scores fall in the order of the images, which copies keep; 1e-2 is what ties may move.
    expected = coco_scores(*copied, copies, categories).mean
    for name in ("AP", "AP50"):
        assert resampled[name][0] == pytest.approx(expected[name], abs=1e-2)


def test_nothing_found_is_zero_and_nothing_to_find_is_none():
    gold, _, images, categories = drawn_set(0, images=8, crowds=False)
    assert coco_scores(gold, [], images, categories).mean["AP"] == 0.0
    nothing = coco_scores([], [], [1], ["dog"])
    assert nothing.mean["AP"] is None and nothing.by_category["dog"]["AP50"] is None
    # Names serve as ids.
    box = {"image_id": "a.jpg", "category_id": "dog", "bbox": [1.0, 1.0, 50.0, 50.0]}
    scores = coco_scores([box], [box | {"score": 0.3}], ["a.jpg", "b.jpg"], ["cat", "dog"])
    assert scores.mean["AP"] == pytest.approx(1.0) and scores.by_category["cat"]["AP"] is None
