"""MiniCPM-V 4.6 cuts images as transformers' processor does, and ms-swift's template counts so."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.image_lengths import image_lengths

from swift_vlrft.families import FAMILIES
from swift_vlrft.tiny.checkpoint import write_tiny

RULE = FAMILIES["minicpmv4_6"].images
SIDES = st.integers(1, 1200)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "minicpmv4_6"
    write_tiny("minicpmv4_6", folder)
    return folder


@pytest.fixture(scope="module")
def processor(checkpoint):
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(checkpoint)


def seen(processor, image, **options):
    """Sizes of the views that the processor makes."""
    made = processor.image_processor(
        [image], input_data_format="channels_first", return_tensors="pt", **options
    )
    return [(columns * 14, rows * 14) for rows, columns in made["target_sizes"].tolist()]


@settings(max_examples=60, deadline=None)
@given(width=SIDES, height=SIDES, slices=st.integers(1, 12))
def test_views_are_the_processors(processor, width, height, slices):
    side = processor.image_processor.scale_resolution
    image = Image.new("RGB", (width, height))
    limits = {"min_pixels": side**2, "max_pixels": (1 + slices) * side**2}
    views = RULE.parts(width, height, **limits)
    assert views == seen(processor, image, max_slice_nums=slices)
    width_of_all, height_of_all = RULE.size(width, height, **limits)
    columns, rows = width_of_all // views[-1][0], height_of_all // views[-1][1]
    assert columns * rows == max(1, len(views) - 1)


@pytest.mark.parametrize("size", [(640, 480), (1600, 300), (448, 448), (449, 448), (3000, 2000)])
def test_views_of_the_published_side(processor, size):
    image = Image.new("RGB", size)
    assert RULE.parts(*size) == seen(processor, image, scale_resolution=448)


@given(width=SIDES, height=SIDES, cap=st.integers(50 * 50, 900 * 900))
def test_a_capped_image_takes_no_more_than_planned(width, height, cap):
    from swift_vlrft.families.resize import capped_size

    low, high = RULE.capped(*RULE.limits(environ={}), cap)
    planned = RULE.parts(width, height, min_pixels=low, max_pixels=high)
    if width * height >= cap:
        assert len(RULE.parts(*capped_size(width, height, cap))) <= high // low
    assert len(planned) <= high // low


def test_the_largest_image_takes_the_most_tokens():
    limits = {"min_pixels": RULE.min_pixels, "max_pixels": RULE.max_pixels}
    most = RULE.tokens(*RULE.largest(*limits.values()), **limits)
    assert most == 640 == RULE.tokens(4000, 4000)
    assert len(RULE.parts(4000, 3000)) == 10


def test_slices_of_the_environment(checkpoint):
    low, high = RULE.limits(model=checkpoint, environ={"MAX_SLICE_NUMS": "4"})
    assert (low, high) == (112**2, 5 * 112**2)
    assert len(RULE.parts(2000, 2000, min_pixels=low, max_pixels=high)) == 5
    none = RULE.limits(model=checkpoint, environ={"MAX_SLICE_NUMS": "0"})
    assert RULE.tokens(*RULE.largest(*none), min_pixels=none[0], max_pixels=none[1]) == 4


def test_the_template_of_ms_swift_counts_as_the_rule(checkpoint):
    """The whole prompt with an image against the one without it."""
    low, high = RULE.limits(model=checkpoint, environ={})
    limits = {"min_pixels": low, "max_pixels": high}
    sizes = [(640, 480), (90, 300), (30, 30)]
    counted = [RULE.tokens(*size, **limits) + RULE.marks(*size, **limits) for size in sizes]
    assert image_lengths(checkpoint, sizes) == counted
