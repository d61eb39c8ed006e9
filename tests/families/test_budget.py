"""Gemma 4 resizes images as transformers' processor does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_vlrft.families import FAMILIES

RULE = FAMILIES["gemma4"].images
BUDGETS = (70, 140, 280, 560, 1120)
SIDES = st.integers(1, 1500)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(width=SIDES | st.integers(1, 40_000), height=SIDES, budget=st.sampled_from(BUDGETS))
def test_sizes_are_the_processors(width, height, budget):
    from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size

    rule = RULE.within(budget * 48**2, budget * 48**2)
    size = get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
    assert rule.size(width, height) == size[::-1]
    assert rule.tokens(width, height) <= budget
    assert rule.tokens(*rule.largest()) == budget
