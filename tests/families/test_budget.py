"""Gemma 4 resizes images as transformers' processor does, and ms-swift's template counts so."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.image_lengths import image_lengths

from swift_vlrft.families import FAMILIES
from swift_vlrft.tiny.checkpoint import write_tiny

RULE = FAMILIES["gemma4"].images
BUDGETS = (70, 140, 280, 560, 1120)
SIDES = st.integers(1, 1500)


def area(budget):
    return {"min_pixels": budget * 48**2, "max_pixels": budget * 48**2}


@settings(max_examples=300, deadline=None)
@given(width=SIDES | st.integers(1, 40_000), height=SIDES, budget=st.sampled_from(BUDGETS))
def test_sizes_are_the_processors(width, height, budget):
    from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size

    size = get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
    assert RULE.size(width, height, **area(budget)) == size[::-1]
    assert RULE.tokens(width, height, **area(budget)) <= budget


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_largest_image_fills_the_budget(budget):
    assert RULE.tokens(*RULE.largest(*area(budget).values()), **area(budget)) == budget


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "gemma4"
    write_tiny("gemma4", folder)
    return folder


SHAPES = [(640, 480), (90, 300), (30, 30), (3000, 20)]


@pytest.mark.parametrize("size", SHAPES)
def test_the_checkpoints_processor_makes_these_tokens(size, checkpoint):
    from transformers import AutoProcessor

    made = AutoProcessor.from_pretrained(checkpoint).image_processor(Image.new("RGB", size))
    low, high = RULE.limits(model=checkpoint, environ={})
    assert low == high == 70 * 48**2  # the tiny one's; the published have 280
    assert made["num_soft_tokens_per_image"] == [RULE.tokens(*size, max_pixels=high)]


def test_the_template_of_ms_swift_counts_as_the_rule(checkpoint):
    """The whole prompt with an image against the one without it."""
    _, high = RULE.limits(model=checkpoint, environ={})
    counted = [RULE.tokens(*size, max_pixels=high) + RULE.marks(*size) for size in SHAPES]
    assert image_lengths(checkpoint, SHAPES) == counted
