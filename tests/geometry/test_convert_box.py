"""Boxes from any format into any other, against shares of the sides that are computed here."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swift_vlrft.geometry.box_format import BOX_FORMATS, convert_box

HALF = Fraction(1, 2)
side = st.integers(1, 4000)
number = st.integers(0, 1000)


def parts_of(name, size):
    """How many units of a format width and height have."""
    return size if name == "pixels" else (1000, 1000)


def corners(box, name):
    """x1, y1, x2, y2 in units of the format, as whole numbers."""
    a, b, c, d = (Fraction(str(v)) * (1000 if name == "unit" else 1) for v in box)
    return [b, a, d, c] if name == "yx1000" else [a, b, c, d]


@example(size=(28, 4000), seen=(28, 4000), numbers=(500, 0, 501, 1000))  # less than a pixel
@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.tuples(side, side), st.tuples(side, side), st.tuples(*[number] * 4))
def test_an_edge_moves_by_half_a_unit_at_most(size, seen, numbers):
    """One edge of a box that would be thinner than a unit moves by up to a unit."""
    for before, after in itertools.product(BOX_FORMATS, BOX_FORMATS):
        limits, new_limits = parts_of(before, size), parts_of(after, seen)
        edges = [sorted(n * limits[k] // 1000 for n in numbers[k::2]) for k in (0, 1)]
        if any(first == last for first, last in edges):
            continue
        (x1, x2), (y1, y2) = edges
        box = (y1, x1, y2, x2) if before == "yx1000" else (x1, y1, x2, y2)
        box = tuple(v / 1000 for v in box) if before == "unit" else box
        found = corners(convert_box(box, before, after, size=size, to_size=seen), after)
        for k, limit in enumerate(new_limits):
            first, last = found[k], found[k + 2]
            assert 0 <= first < last <= limit and first == int(first) and last == int(last)
            exact = [Fraction(edge * limit, limits[k]) for edge in edges[k]]
            moved = [abs(first - exact[0]), abs(last - exact[1])]
            thin = (exact[0] + HALF).__floor__() == (exact[1] + HALF).__floor__()
            assert min(moved) <= HALF and max(moved) <= (1 if thin else HALF), (before, after)
            assert last - first == 1 or not thin


def test_one_image_to_another_and_unknown_formats():
    box = convert_box((10, 20, 30, 40), "pixels", "pixels", size=(100, 100), to_size=(200, 50))
    assert box == (20, 10, 60, 20)
    with pytest.raises(ValueError, match="'cm'; known: norm1000, pixels"):
        convert_box((1, 2, 3, 4), "cm", "pixels", size=(9, 9))
