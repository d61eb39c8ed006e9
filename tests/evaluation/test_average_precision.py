"""COCO's average precision: the numbers are pycocotools's, and those of resampled images follow."""

import contextlib
import copy
import io
import random

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from swift_vlrft.evaluation.average_precision import coco_scores


def made_set(seed: int, images: int = 60, categories: int = 5, crowds: bool = True):
    """Gold and detections near it, beside it, doubled, with equal scores, on crowds."""
    rng = random.Random(seed)
    gold, found = [], []
    for image in range(1, images + 1):
        for category in range(1, categories + 1):
            for _ in range(rng.choice((0, 0, 1, 2, 5))):
                side = rng.choice((10, 50, 200))
                box = [rng.uniform(0, 400), rng.uniform(0, 400)]
                box += [rng.uniform(0.5, 1.5) * side, rng.uniform(0.5, 1.5) * side]
                crowd = crowds and rng.random() < 0.1
                gold.append(
                    {
                        "image_id": image,
                        "category_id": category,
                        "bbox": box,
                        "area": box[2] * box[3] * rng.uniform(0.5, 1.0),
                        "iscrowd": int(crowd),
                    }
                )
                for _ in range(rng.choice((0, 1, 1, 1, 3))):
                    slip = rng.choice((0.0, 0.05, 0.2, 0.5))
                    moved = [v + rng.uniform(-slip, slip) * side for v in box]
                    moved[2:] = [max(1.0, v) for v in moved[2:]]
                    score = round(rng.random(), 1)
                    found.append(
                        {"image_id": image, "category_id": category, "bbox": moved, "score": score}
                    )
            if rng.random() < 0.2:
                far = [rng.uniform(500, 600), 500.0, 20.0, 20.0]
                found.append(
                    {"image_id": image, "category_id": category, "bbox": far, "score": 0.9}
                )
    return gold, found, list(range(1, images + 1)), list(range(1, categories + 1))


def pycocotools_stats(gold, found, images, categories):
    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": i, "width": 640, "height": 640} for i in images],
        "categories": [{"id": c, "name": str(c)} for c in categories],
        "annotations": [{"id": n, **box} for n, box in enumerate(gold, start=1)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        results = truth.loadRes(copy.deepcopy(found))
        evaluator = COCOeval(truth, results, "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return evaluator


def by_order(images):
    return {image: n for n, image in enumerate(images)}


@pytest.mark.parametrize("seed", range(6))
def test_average_precision_is_that_of_pycocotools(seed):
    made = made_set(seed)
    expected = pycocotools_stats(*made)
    scores = coco_scores(*made)
    names = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large")
    for name, value in zip(names, expected.stats[:6], strict=True):
        assert scores.mean[name] == pytest.approx(value, abs=1e-6)
    precision = expected.eval["precision"]
    for n, category in enumerate(made[3]):
        of_category = precision[:, :, n, 0, 2]
        assert scores.by_category[category]["AP"] == pytest.approx(of_category.mean(), abs=1e-6)
        assert scores.by_category[category]["AP50"] == pytest.approx(
            of_category[0].mean(), abs=1e-6
        )


@pytest.mark.parametrize("seed", range(4))
def test_every_image_once_is_the_plain_average_precision(seed):
    made = made_set(seed)
    scores = coco_scores(*made, by_order(made[2]))
    drawn, expected = scores.resampled(np.ones((2, len(made[2])))), scores.mean
    assert drawn["AP"] == pytest.approx([expected["AP"]] * 2, abs=1e-6)
    assert drawn["AP50"] == pytest.approx([expected["AP50"]] * 2, abs=1e-6)


def test_an_image_drawn_twice_counts_as_two_images():
    gold, found, images, categories = made_set(3, images=8)
    counts = [2, 0, 1, 3, 0, 1, 1, 0]
    scores = coco_scores(gold, found, images, categories, by_order(images))
    drawn = scores.resampled(np.array([counts], float))
    copies, golds, founds = [], [], []
    for image, count in zip(images, counts, strict=True):
        for turn in range(count):
            copies.append(image * 10 + turn)
            for source, target in ((gold, golds), (found, founds)):
                target += [
                    {**box, "image_id": copies[-1]} for box in source if box["image_id"] == image
                ]
    # Equal scores fall in the order of the images, which copies keep; 1e-2 is what ties may move.
    expected = coco_scores(golds, founds, copies, categories).mean
    assert drawn["AP50"][0] == pytest.approx(expected["AP50"], abs=1e-2)
    assert drawn["AP"][0] == pytest.approx(expected["AP"], abs=1e-2)


def test_nothing_found_is_zero_and_nothing_to_find_is_none():
    gold, _, images, categories = made_set(0, crowds=False)
    assert coco_scores(gold, [], images, categories).mean["AP"] == 0.0
    assert coco_scores([], [], [1], ["dog"]).mean["AP"] is None
    assert coco_scores([], [], [1], ["dog"]).by_category["dog"]["AP50"] is None


def test_names_serve_as_ids():
    box = {"image_id": "a.jpg", "category_id": "dog", "bbox": [1.0, 1.0, 50.0, 50.0]}
    scores = coco_scores([box], [{**box, "score": 0.3}], ["a.jpg", "b.jpg"], ["cat", "dog"])
    assert scores.mean["AP"] == pytest.approx(1.0)
    assert scores.by_category["cat"]["AP"] is None
