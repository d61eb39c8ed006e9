"""Spans of time, matched in every way there is."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_vlrft.rewards import score

span = st.builds(lambda a, n: [a, a + n], st.integers(0, 12), st.integers(1, 8))
spans = st.lists(span, min_size=1, max_size=4)


def said(given):
    return f"<think>9 to 9</think><answer>{json.dumps(given)}</answer>"


def share(a, b):
    """Whole seconds in both, of those in either."""
    first, second = set(range(*a)), set(range(*b))
    return len(first & second) / len(first | second)


@settings(max_examples=150)
@given(spans, spans)
def test_the_matching_with_the_largest_sum_is_paid(answer, gold):
    few, many = sorted((answer, gold), key=len)
    best = max(sum(map(share, few, chosen)) for chosen in itertools.permutations(many, len(few)))
    value = score("vlrft_temporal_iou", said(answer), gold)
    assert value == pytest.approx(best / len(many))
