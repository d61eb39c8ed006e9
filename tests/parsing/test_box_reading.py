"""The short way of reading boxes and the careful one read the same."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swift_vlrft.parsing import boxes
from swift_vlrft.parsing.boxes import read_boxes

number = st.integers(-1000, 2000) | st.floats(allow_nan=True) | st.sampled_from([10**30, -0.0])
odd = st.sampled_from([None, True, "7", [], {}, "\ud800", "it's", 'a "b"', "a\\b", "", "Cat_ 1"])
corners = st.lists(number, min_size=4, max_size=4) | st.lists(number | odd, max_size=5) | odd
item = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("Position", "bbox_2d", "box", "box_2d", "boxes"), corners)
    | {
        "Confidence": st.floats(-1, 2) | number | odd,
        "score": st.floats(0, 1),
        "label": st.sampled_from(["dog", " Dog.", "fire-truck"]) | odd | number,
        "category": st.text(max_size=3),
        "other": number,
    },
)
tame = st.fixed_dictionaries(
    {"Position": st.lists(number, min_size=4, max_size=4)},
    optional={
        "Confidence": st.floats(-1, 2) | st.sampled_from([0, 1, 1.0]),
        "label": st.text(max_size=3),
        "score": number,
    },
)
wild = st.lists(item, min_size=1, max_size=4)
written = st.sampled_from([json.dumps, repr, lambda v: json.dumps(v, ensure_ascii=False)])


def carefully(text):
    """What ``read_boxes`` says without its shortcut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes, "_read_virft", lambda text: None)
        return read_boxes(text)


def as_text(found):
    return None if found is None else repr((found.boxes, found.confidences, found.labels))


@pytest.mark.slow
@settings(max_examples=300)
@given(st.builds(lambda items, write: write(items), st.lists(tame, max_size=4) | wild, written))
@example('[{"Position": [1, 2, 3, 4]}] [{"Position": [1, 2, 3, 4]}]')
@example('[{"Position": [1, 2, 3, 4]}, {"Position": [1, 2, 3, 4], "Position": [5, 6, 7, 8]}]')
@example('[{"Position": [1, 2, 3, 1e400]}]')
@example('[{"Position": [0, 0, 1e-200, 1e-200]}]')
@example('[{"label": "<|box_start|>", "box": [1, 2, 3, 4]}]')
def test_the_shortcut_changes_nothing(text):
    assert as_text(read_boxes(text)) == as_text(carefully(text))


@pytest.mark.parametrize("n", [1, 7])
def test_what_a_trained_model_writes_takes_the_short_way(n, monkeypatch):
    monkeypatch.setattr(boxes, "groups", None)  # the careful reading would call it
    items = [{"Position": [i, 20, 90, 80.5], "Confidence": 1} for i in range(n)]
    for text in (str(items), json.dumps(items)):
        assert len(read_boxes(text)) == n
