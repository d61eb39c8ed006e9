"""Gemma 4 resizes images as transformers' processor does."""

from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from swift_vlrft.families import FAMILIES

RULE = FAMILIES["gemma4"].images
BUDGETS = (70, 140, 280, 560, 1120)
SIDES = st.integers(1, 1500)
SHAPES = [(640, 480), (90, 300), (30, 30), (3000, 20)]


def rule_of(budget):
    return RULE.within(budget * 48**2, budget * 48**2)


@settings(max_examples=200, deadline=None)
@given(width=SIDES | st.integers(1, 40_000), height=SIDES, budget=st.sampled_from(BUDGETS))
def test_sizes_are_the_processors(width, height, budget):
    from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size

    rule, size = rule_of(budget), get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
    assert rule.size(width, height) == size[::-1]
    assert rule.tokens(width, height) <= budget
    assert rule.tokens(*rule.largest()) == budget


def test_the_checkpoints_processor_makes_these_tokens(checkpoint):
    """Of each shape, with the limit of the tiny checkpoint; the published have 280."""
    from transformers import AutoProcessor

    rule = RULE.of(checkpoint("gemma4"), {})
    assert rule == rule_of(70)
    tokens = [rule.tokens(*size) for size in SHAPES]
    processor = AutoProcessor.from_pretrained(checkpoint("gemma4")).image_processor
    images = [processor(Image.new("RGB", size)) for size in SHAPES]
    assert [made["num_soft_tokens_per_image"] for made in images] == [[n] for n in tokens]
