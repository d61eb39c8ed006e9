"""Which readings fit boxes, by a table; and whether boxes are read as they were written."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.written_boxes import written

from swift_vlrft.geometry.readings import (
    MOST,
    ORDERS,
    READINGS,
    UNITS,
    Reading,
    clipped,
    corners,
    is_dot,
    misfit,
    shares,
)

CASES = list(map(json.loads, Path(__file__).with_name("readings.jsonl").open()))
FAR = (640, 480)


def named(readings):
    return ", ".join(" ".join(reading) for reading in readings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_the_readings_that_fit(case):
    times = case.get("times") or [1] * len(case["boxes"])
    size = tuple(case.get("size", FAR))
    boxes = [(b, size) for b, n in zip(case["boxes"], times, strict=True) for _ in range(n)]
    found = named(way for way, share in shares(boxes).items() if share >= MOST)
    assert found == case["fits"]
    wrong = misfit(boxes, Reading(*case.get("stated", "xywh pixels").split()))
    assert (wrong is not None) == ("refused" in case)
    if wrong:
        assert wrong.said().startswith(case["refused"])
        assert named(wrong.better) == case["proposed"]


@st.composite
def drawn_boxes(draw):
    """Corners in pixels, with area, inside pictures of several sizes: what a person drew."""
    found = []
    for _ in range(draw(st.integers(1, 12))):
        width, height = draw(st.integers(8, 4000)), draw(st.integers(8, 4000))
        x1, y1 = draw(st.integers(0, width - 4)), draw(st.integers(0, height - 4))
        x2, y2 = draw(st.integers(x1 + 3, width)), draw(st.integers(y1 + 3, height))
        found.append(((x1, y1, x2, y2), (width, height)))
    return found


@pytest.mark.slow
@settings(deadline=None)
@given(drawn_boxes(), st.sampled_from(READINGS))
def test_the_reading_that_boxes_were_written_in_fits_and_gives_them_back(drawn, reading):
    boxes = [(written(box, reading, size), size) for box, size in drawn]
    for (numbers, size), (box, _) in zip(boxes, drawn, strict=True):
        assert corners(numbers, reading, size) == pytest.approx(box, abs=1e-6)
    # Specks in large pictures have percents below 1, and look like shares.
    assume(reading.unit == "unit" or not any(is_dot(numbers) for numbers, _ in boxes))
    assume(len(boxes) < 10)  # of more, all may lie in a corner
    assert shares(boxes)[reading] == 1.0 and misfit(boxes, reading) is None


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(1, 899)] * 4), min_size=1, max_size=30),
    st.tuples(st.integers(100, 900), st.integers(100, 900)),
    st.sampled_from(list(ORDERS)),
)
def test_boxes_in_small_pictures_are_never_proposed_to_be_thousandths(drawn, size, order):
    """Nearly any numbers fit as thousandths there: also those of slips and of larger copies."""
    wrong = misfit([(box, size) for box in drawn], Reading(order, "pixels"))
    assert wrong is None or {way.unit for way in wrong.better}.isdisjoint({"norm1000"})


@pytest.mark.slow
@settings(deadline=None)
@given(
    drawn_boxes(),
    st.sampled_from(list(ORDERS)),
    st.sampled_from(list(ORDERS)),
    st.sampled_from(list(UNITS)),
)
def test_a_wrong_order_is_proposed_as_it_was_written(drawn, order, stated, unit):
    boxes = [(written(box, Reading(order, unit), size), size) for box, size in drawn]
    assume(unit == "unit" or not any(is_dot(numbers) for numbers, _ in boxes))
    assume(len(boxes) < 10 and (unit != "norm1000" or max(max(b) for b, _ in boxes) >= 900))
    wrong = misfit(boxes, Reading(stated, unit))
    assert wrong is None or Reading(order, unit) in wrong.better


def test_only_the_part_inside_the_picture_is_kept():
    assert clipped((-1.5, 10, 641, 480), FAR) == (0, 10, 640, 480)
    assert clipped((640, 10, 642, 20), FAR) is None
