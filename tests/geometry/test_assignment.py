"""Matching against brute force and scipy."""

import itertools

import numpy as np
import pytest

from swift_vlrft.geometry.assignment import match


def test_matching_is_the_best_of_all_matchings():
    rng = np.random.default_rng(3)
    contested = 0
    for _ in range(300):
        n, m = rng.integers(1, 6, 2)
        weights = np.where(rng.random((n, m)) < 0.6, rng.uniform(0.5, 1.0, (n, m)), 0.0)
        pairs = [(i, j, weights[i, j]) for i in range(n) for j in range(m) if weights[i, j]]
        small, large = (weights, m) if n <= m else (weights.T, n)
        best = max(
            sum(small[r, c] for r, c in enumerate(columns))
            for columns in itertools.permutations(range(large), small.shape[0])
        )
        chosen = match(pairs)
        assert len({i for i, _, _ in chosen}) == len({j for _, j, _ in chosen}) == len(chosen)
        assert sum(overlap for _, _, overlap in chosen) == pytest.approx(best, abs=1e-8)
        contested += len(chosen) < len(pairs)
    assert contested > 100


@pytest.mark.parametrize("gold", range(1, 10))
def test_crowds_are_matched_as_scipy_would(gold):
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(gold)
    for predicted in (2, 9, 40, 90):
        weights = np.where(
            rng.random((predicted, gold)) < 0.7, rng.uniform(0.5, 1.0, (predicted, gold)), 0.0
        )
        pairs = [(int(i), int(j), float(weights[i, j])) for i, j in np.argwhere(weights)]
        rows, columns = optimize.linear_sum_assignment(-weights)
        chosen = match(pairs)
        assert set(chosen) <= set(pairs)
        assert len({i for i, _, _ in chosen}) == len({j for _, j, _ in chosen}) == len(chosen)
        assert sum(w for _, _, w in chosen) == pytest.approx(weights[rows, columns].sum(), abs=1e-8)


def test_equal_overlaps_are_decided_against_the_model():
    pairs = [(0, 0, 0.9), (1, 0, 0.9), (2, 0, 0.8)]
    assert match(pairs, [0.9, 0.1, 0.0]) == [(1, 0, 0.9)]
    two = [(0, 0, 0.9), (1, 0, 0.9), (0, 1, 0.6), (1, 1, 0.6), (2, 0, 0.9), (2, 1, 0.6)]
    assert {i for i, _, _ in match(two, [0.9, 0.1, 0.2])} == {1, 2}


def overlaps_chosen(weights, order):
    rows = np.argwhere(weights[order])
    pairs = [(int(i), int(j), float(weights[order][i, j])) for i, j in rows]
    return tuple(sorted(overlap for _, _, overlap in match(pairs)))


@pytest.mark.parametrize(
    ("predicted", "gold", "share"), [(24, 12, 0.25), (900, 4, 1), (120, 40, 1)]
)
def test_the_order_of_a_crowd_decides_nothing(predicted, gold, share):
    rng = np.random.default_rng(0)
    for _ in range(60 if share < 1 else 3):
        weights = rng.choice([0.5, 0.625, 0.75], (predicted, gold))  # sums that are equal exactly
        weights *= rng.random((predicted, gold)) < share
        orders = [np.arange(predicted), rng.permutation(predicted), rng.permutation(predicted)]
        assert len({overlaps_chosen(weights, order) for order in orders}) == 1


def test_many_pairs_that_nobody_contests():
    pairs = [(n, n, 0.75) for n in range(2100)]
    assert match(pairs) == pairs
