"""Matching against all matchings that there are."""

import itertools

import numpy as np
import pytest

from swift_vlrft.geometry.assignment import match


def pairs_of(weights):
    return [(int(i), int(j), float(weights[i, j])) for i, j in np.argwhere(weights)]


def test_matching_is_the_best_of_all_matchings():
    rng, contested = np.random.default_rng(3), 0
    for shape in rng.integers(1, 6, (300, 2)).tolist():
        weights = np.where(rng.random(shape) < 0.6, rng.uniform(0.5, 1.0, shape), 0.0)
        pairs = pairs_of(weights)
        small = weights if shape[0] <= shape[1] else weights.T
        best = max(
            sum(small[r, c] for r, c in enumerate(columns))
            for columns in itertools.permutations(range(small.shape[1]), small.shape[0])
        )
        chosen = match(weights)
        assert set(chosen) <= set(pairs)
        assert len({i for i, _, _ in chosen}) == len({j for _, j, _ in chosen}) == len(chosen)
        assert sum(overlap for _, _, overlap in chosen) == pytest.approx(best, abs=1e-8)
        contested += len(chosen) < len(pairs)
    assert contested > 100


def test_equal_overlaps_are_decided_against_the_model():
    column = np.array([[0.9], [0.9], [0.8]])
    assert match(column, [0.9, 0.1, 0.0]) == [(1, 0, 0.9)]
    two = np.array([[0.9, 0.6]] * 3)
    assert {i for i, _, _ in match(two, [0.9, 0.1, 0.2])} == {1, 2}


@pytest.mark.parametrize(
    ("shape", "share", "times"), [((12, 12), 0.25, 100), ((24, 12), 0.25, 60), ((900, 4), 1, 1)]
)
def test_the_order_of_a_crowd_decides_nothing(shape, share, times):
    rng = np.random.default_rng(0)
    for _ in range(times):
        weights = rng.choice([0.5, 0.625, 0.75], shape)  # sums that are equal exactly
        weights *= rng.random(shape) < share
        chosen = [sorted(w for *_, w in match(weights[rng.permutation(shape[0])]))
                  for _ in range(3)]  # fmt: skip
        assert chosen[0] == chosen[1] == chosen[2]


def test_many_pairs_that_nobody_contests():
    assert match(np.eye(2100) * 0.75) == [(n, n, 0.75) for n in range(2100)]
    assert match(np.zeros((2, 3))) == match(np.zeros((2, 0))) == []
