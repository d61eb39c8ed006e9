"""MiniCPM-V 4.6 cuts images as transformers' processor does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from swift_vlrft.families import FAMILIES
from swift_vlrft.families.resize import capped_size

pytestmark = pytest.mark.slow  # transformers is imported

RULE = FAMILIES["minicpmv4_6"].images
SIDES = st.integers(1, 1200)


@pytest.fixture(scope="module")
def processor(checkpoint):
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(checkpoint("minicpmv4_6")).image_processor


def seen(processor, size, **options):
    """Sizes of the views that the processor makes."""
    kinds = {"input_data_format": "channels_first", "return_tensors": "pt"}
    made = processor([Image.new("RGB", size)], **kinds, **options)
    return [(columns * 14, rows * 14) for rows, columns in made["target_sizes"].tolist()]


@settings(max_examples=60, deadline=None)
@given(width=SIDES, height=SIDES, slices=st.integers(1, 12))
def test_views_are_the_processors(processor, width, height, slices):
    side = processor.scale_resolution
    rule = RULE.within(side**2, (1 + slices) * side**2)
    views = rule.parts(width, height)
    assert views == seen(processor, (width, height), max_slice_nums=slices)
    width_of_all, height_of_all = rule.size(width, height)
    columns, rows = width_of_all // views[-1][0], height_of_all // views[-1][1]
    assert columns * rows == max(1, len(views) - 1)


@pytest.mark.parametrize("size", [(640, 480), (1600, 300), (448, 448), (449, 448), (3000, 2000)])
def test_views_of_the_published_side(processor, size):
    assert RULE.parts(*size) == seen(processor, size, scale_resolution=448)


@given(width=SIDES, height=SIDES, cap=st.integers(50 * 50, 900 * 900))
def test_a_capped_image_takes_no_more_than_planned(width, height, cap):
    rule = RULE.capped(cap)
    assert len(rule.parts(width, height)) <= rule.most
    if width * height >= cap:
        assert len(RULE.parts(*capped_size(width, height, cap))) <= rule.most


def test_limits_and_the_most_tokens(checkpoint):
    assert RULE.tokens(*RULE.largest()) == 640 == RULE.tokens(4000, 4000)
    assert len(RULE.parts(4000, 3000)) == 10
    four, none = (RULE.of(checkpoint("minicpmv4_6"), {"MAX_SLICE_NUMS": number}) for number in "40")
    assert four == RULE.within(112**2, 5 * 112**2)
    assert len(four.parts(2000, 2000)) == 5
    assert none.tokens(*none.largest()) == 4
