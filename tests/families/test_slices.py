"""MiniCPM-V 4.6 cuts images as transformers' processor does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from swift_vlrft.families import FAMILIES
from swift_vlrft.families.resize import capped_size

RULE = FAMILIES["minicpmv4_6"].images
SIDES = st.integers(1, 1200)


@pytest.fixture(scope="module")
def processor(checkpoint):
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(checkpoint("minicpmv4_6")).image_processor


def seen(processor, size, **options):
    """Sizes of the views that the processor makes."""
    image = Image.new("RGB", size)
    kinds = {"input_data_format": "channels_first", "return_tensors": "pt"}
    made = processor([image], **kinds, **options)
    return [(columns * 14, rows * 14) for rows, columns in made["target_sizes"].tolist()]


@settings(max_examples=60, deadline=None)
@given(width=SIDES, height=SIDES, slices=st.integers(1, 12))
def test_views_are_the_processors(processor, width, height, slices):
    side = processor.scale_resolution
    limits = {"min_pixels": side**2, "max_pixels": (1 + slices) * side**2}
    views = RULE.parts(width, height, **limits)
    assert views == seen(processor, (width, height), max_slice_nums=slices)
    width_of_all, height_of_all = RULE.size(width, height, **limits)
    columns, rows = width_of_all // views[-1][0], height_of_all // views[-1][1]
    assert columns * rows == max(1, len(views) - 1)


@pytest.mark.parametrize("size", [(640, 480), (1600, 300), (448, 448), (449, 448), (3000, 2000)])
def test_views_of_the_published_side(processor, size):
    assert RULE.parts(*size) == seen(processor, size, scale_resolution=448)


@given(width=SIDES, height=SIDES, cap=st.integers(50 * 50, 900 * 900))
def test_a_capped_image_takes_no_more_than_planned(width, height, cap):
    low, high = RULE.capped(*RULE.limits(environ={}), cap)
    assert len(RULE.parts(width, height, min_pixels=low, max_pixels=high)) <= high // low
    if width * height >= cap:
        assert len(RULE.parts(*capped_size(width, height, cap))) <= high // low


def test_limits_and_the_most_tokens(checkpoint):
    def most(limits):
        return RULE.tokens(*RULE.largest(*limits), min_pixels=limits[0], max_pixels=limits[1])

    assert most((RULE.min_pixels, RULE.max_pixels)) == 640 == RULE.tokens(4000, 4000)
    assert len(RULE.parts(4000, 3000)) == 10
    low, high = RULE.limits(model=checkpoint("minicpmv4_6"), environ={"MAX_SLICE_NUMS": "4"})
    assert (low, high) == (112**2, 5 * 112**2)
    assert len(RULE.parts(2000, 2000, min_pixels=low, max_pixels=high)) == 5
    none = RULE.limits(model=checkpoint("minicpmv4_6"), environ={"MAX_SLICE_NUMS": "0"})
    assert most(none) == 4
