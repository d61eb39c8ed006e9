"""Boxes from thousandths into pixels and back."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swift_vlrft.geometry.box_format import convert_box


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
    st.tuples(*[st.floats(0, 1)] * 4),
)
def test_there_and_back_is_within_one_pixel(size, parts):
    width, height = size
    xs, ys = sorted((parts[0], parts[2])), sorted((parts[1], parts[3]))
    box = (round(xs[0] * width), round(ys[0] * height), round(xs[1] * width), round(ys[1] * height))
    if box[0] == box[2] or box[1] == box[3]:
        return
    there = convert_box(box, "pixels", "norm1000", size=size)
    back = convert_box(there, "norm1000", "pixels", size=size)
    assert 0 <= there[0] < there[2] <= 1000 and 0 <= there[1] < there[3] <= 1000
    assert all(abs(a - b) <= 1 for a, b in zip(box, back, strict=True))


@example(size=(28, 4000), numbers=(500, 0, 501, 1000))  # less than a pixel
@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    st.tuples(st.integers(28, 4000), st.integers(28, 4000)), st.tuples(*[st.integers(0, 1000)] * 4)
)
def test_a_norm1000_box_keeps_its_place_in_pixels_to_within_one_pixel(size, numbers):
    x1, x2 = sorted(numbers[::2])
    y1, y2 = sorted(numbers[1::2])
    if x1 == x2 or y1 == y2:
        return
    there = convert_box((x1, y1, x2, y2), "norm1000", "pixels", size=size)
    exact = (x1 * size[0] / 1000, y1 * size[1] / 1000, x2 * size[0] / 1000, y2 * size[1] / 1000)
    assert all(abs(a - b) <= 1 for a, b in zip(there, exact, strict=True))
    assert there[0] < there[2] and there[1] < there[3]


def test_one_image_to_another_and_unknown_formats():
    box = convert_box((10, 20, 30, 40), "pixels", "pixels", size=(100, 100), to_size=(200, 50))
    assert box == (20, 10, 60, 20)
    with pytest.raises(ValueError, match="'cm'; known: norm1000, pixels"):
        convert_box((1, 2, 3, 4), "cm", "pixels", size=(9, 9))
