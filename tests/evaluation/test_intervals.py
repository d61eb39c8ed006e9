"""Intervals hold the truth in about 95 of 100 sets, small ones and good models included."""

import numpy as np
import pytest

from swift_vlrft.evaluation.coco import CocoScores, _Ranked
from swift_vlrft.evaluation.intervals import of_difference, of_draws, of_mean, resamples

SETS = 400
LEAST = 0.925
"""0.95 less two and a half standard errors of a share of 400 sets."""


def iou(rng, n):
    return np.where(rng.random(n) < 0.3, 0.0, rng.beta(8, 2, n))


def of_rows(rng, n):
    """Images of 1 to 8 rows that the model finds equally hard."""
    rows, share = rng.integers(1, 9, n), rng.beta(4, 1, n)
    return np.stack([rng.binomial(rows, share), rows]).astype(float)


def share(values):
    return np.stack([values, np.ones(len(values))]).astype(float)


MEANS = {
    "accuracy 0.5": (lambda rng, n: share(rng.random(n) < 0.5), 0.5),
    "accuracy 0.95": (lambda rng, n: share(rng.random(n) < 0.95), 0.95),
    "IoU": (lambda rng, n: share(iou(rng, n)), 0.56),
    "IoU, mostly 0": (lambda rng, n: share(iou(rng, n) * (rng.random(n) < 0.15)), 0.084),
    "accuracy of several rows an image": (of_rows, 0.8),
}


@pytest.mark.parametrize("images", [20, 64, 500])
@pytest.mark.parametrize(("drawn", "truth"), MEANS.values(), ids=MEANS)
def test_the_interval_of_a_metric_holds_its_value(drawn, truth, images):
    rng = np.random.default_rng(1)
    found = [of_mean(drawn(rng, images), True) for _ in range(SETS)]
    assert np.mean([low <= truth <= high for low, high in found]) >= LEAST
    assert all(0 <= low <= high <= 1 for low, high in found)


def flips(gained, lost):
    def pair(rng, n):
        at, right = rng.random(n), rng.random(n) < 0.5
        before = np.where(at < gained, 0, np.where(at < gained + lost, 1, right))
        after = np.where(at < gained, 1, np.where(at < gained + lost, 0, right))
        return share(before), share(after)

    return pair


def better_ious(rng, n):
    before = iou(rng, n)
    return share(before), share(np.where(rng.random(n) < 0.2, rng.beta(8, 2, n), before))


PAIRS = {
    "many change": (flips(0.3, 0.1), 0.2),
    "none got better": (flips(0.05, 0.05), 0.0),
    "one in twenty": (flips(0.05, 0.0), 0.05),
    "IoU of every fifth row": (better_ious, 0.2 * (0.8 - 0.56)),
    "several rows an image": (lambda rng, n: (of_rows(rng, n), of_rows(rng, n)), 0.0),
}


@pytest.mark.parametrize("images", [20, 64, 500])
@pytest.mark.parametrize(("drawn", "truth"), PAIRS.values(), ids=PAIRS)
def test_the_interval_of_a_difference_holds_it(drawn, truth, images):
    rng = np.random.default_rng(2)
    found = [of_difference(*drawn(rng, images), True) for _ in range(SETS)]
    assert np.mean([low <= truth <= high for low, high in found]) >= LEAST


def ranked_answers(rng, images, detected):
    """A category of two models' detections, each an object that one finds easier than another."""
    counts = rng.binomial(2, 0.25, images)
    of_gold, of_false = np.repeat(np.arange(images), counts), rng.integers(0, images, images // 3)
    ease, fit = rng.random((2, len(of_gold)))
    hits = np.concatenate([fit > np.arange(0, 1, 0.1)[:, None], np.zeros((10, len(of_false)))], 1)
    scores = np.concatenate([rng.normal(1, 1, len(of_gold)), rng.normal(0, 1, len(of_false))])
    for share_found in detected:
        found = np.concatenate([ease < share_found, np.ones(len(of_false), bool)])
        order = np.argsort(-scores[found], kind="stable")
        unit = np.concatenate([of_gold, of_false])[found][order]
        hit = hits[:, found][:, order] > 0
        yield _Ranked(np.tile(unit, (10, 1)), hit, ~hit, counts.astype(float))


@pytest.mark.slow
def test_average_precision_of_few_images_is_not_held_for_more_than_it_is():
    """Percentiles of the draws hold it in 65 of 100 sets."""
    rng = np.random.default_rng(3)

    def scored(images):
        models = zip(*(ranked_answers(rng, images, (0.7, 0.8)) for _ in range(3)), strict=True)
        return [CocoScores({}, {}, list(model)) for model in models]

    truth = [one.resampled(np.ones((1, 20_000)))["AP"][0] for one in scored(20_000)]
    held = []
    for _ in range(80):
        models, once, weights = scored(64), np.ones((1, 64)), resamples(64, 100)
        (a, b), (drawn_a, drawn_b) = (
            [one.resampled(at)["AP"] for one in models] for at in (once, weights)
        )
        sides = (a, drawn_a, truth[0]), (b - a, drawn_b - drawn_a, truth[1] - truth[0])
        ends = [(*of_draws(drawn, value[0], 64, -1.0), right) for value, drawn, right in sides]
        held.append([low <= right <= high for low, high, right in ends])
    assert np.mean(held, axis=0).min() >= 0.87  # 80 sets: 0.95 less three standard errors
