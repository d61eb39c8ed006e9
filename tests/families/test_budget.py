"""Gemma 4 resizes images as transformers' processor does."""

from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from swift_vlrft.families import FAMILIES

RULE = FAMILIES["gemma4"].images
BUDGETS = (70, 140, 280, 560, 1120)
SIDES = st.integers(1, 1500)
SHAPES = [(640, 480), (90, 300), (30, 30), (3000, 20)]


def area(budget):
    return {"min_pixels": budget * 48**2, "max_pixels": budget * 48**2}


@settings(max_examples=200, deadline=None)
@given(width=SIDES | st.integers(1, 40_000), height=SIDES, budget=st.sampled_from(BUDGETS))
def test_sizes_are_the_processors(width, height, budget):
    from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size

    size = get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
    assert RULE.size(width, height, **area(budget)) == size[::-1]
    assert RULE.tokens(width, height, **area(budget)) <= budget
    assert RULE.tokens(*RULE.largest(*area(budget).values()), **area(budget)) == budget


def test_the_checkpoints_processor_makes_these_tokens(checkpoint):
    """Of each shape, with the limit of the tiny checkpoint; the published have 280."""
    from transformers import AutoProcessor

    low, high = RULE.limits(model=checkpoint("gemma4"), environ={})
    assert low == high == 70 * 48**2
    tokens = [RULE.tokens(*size, max_pixels=high) for size in SHAPES]
    processor = AutoProcessor.from_pretrained(checkpoint("gemma4")).image_processor
    images = [processor(Image.new("RGB", size)) for size in SHAPES]
    assert [made["num_soft_tokens_per_image"] for made in images] == [[n] for n in tokens]
