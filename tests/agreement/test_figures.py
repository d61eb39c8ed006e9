"""The arithmetic of the comparison, against plain formulas."""

import math

import pytest
from agreement_rows import row
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_vlrft.agreement.measurement import figures, first_apart

LOGPS = st.floats(-30, 0)
PAIRS = st.lists(st.lists(st.tuples(LOGPS, LOGPS), max_size=5), max_size=4)


@pytest.mark.slow
@settings(max_examples=50)
@given(PAIRS, st.floats(0, 30))
def test_figures_are_those_of_the_formulas(rows, bound):
    result = figures([row([a for a, _ in r], [b for _, b in r]) for r in rows], bound)
    sizes = [abs(b - a) for r in rows for a, b in r]
    if not sizes:
        assert result is None
        return
    assert (result.tokens, result.worst) == (len(sizes), max(sizes))
    assert result.mean == pytest.approx(sum(sizes) / len(sizes))
    ratios = [math.exp(size) for size in sizes]
    assert result.ratio == pytest.approx(sum(ratios) / len(sizes))
    assert result.beyond * len(sizes) == pytest.approx(len([s for s in sizes if s > bound]))


def test_what_is_no_number_is_infinitely_off_and_what_is_not_there_is_left_out():
    found = figures([row([-1.0, -2.0], [-1.0, math.nan])], 1.0)
    assert math.isinf(found.worst) and found.beyond == 0.5
    assert figures([row([], [-1.0]), row([-1.0, -2.0], [-1.0])], 1.0) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "place"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([1], [], 0), ([], [], None)],
)
def test_where_prompts_first_differ(ours, theirs, place):
    assert first_apart(ours, theirs) == place
