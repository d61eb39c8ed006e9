"""Points, spans, texts, numbers, lists and orders against other implementations; what is added to
an answer never pays.
"""

import itertools
import json
import random
import unicodedata
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.limits import time_limit

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.rewards import REWARDS


def score(name, text, gold, **columns):
    completion = f"<think>so 42, [150, 150], cat</think><answer>{text}</answer>"
    listed = {key: [value] for key, value in columns.items()}
    (value,) = REWARDS[f"vlrft_{name}"]([completion], [gold], **listed)
    if value is not None and value < 1.0:
        reason = explain(f"vlrft_{name}", completion, gold, **columns)
        assert reason.score == value and reason.code not in ("ok", "wrong_answer")
    return value


# ---- points -----------------------------------------------------------------------------------

coordinate, side = st.integers(0, 12), st.integers(1, 6)
points = st.lists(st.tuples(coordinate, coordinate).map(list), max_size=5)
box = st.builds(lambda x, y, w, h: [x, y, x + w, y + h], coordinate, coordinate, side, side)


def most_pairs(points, boxes):
    """Every way to give each point a box of its own, or none."""
    inside = [
        [j for j, b in enumerate(boxes) if b[0] <= x <= b[2] and b[1] <= y <= b[3]]
        for x, y in points
    ]
    choices = itertools.product(*([None, *numbers] for numbers in inside))
    taken = ([j for j in choice if j is not None] for choice in choices)
    return max(len(numbers) for numbers in taken if len(set(numbers)) == len(numbers))


@settings(max_examples=150)
@given(
    points,
    st.lists(box, max_size=5),
    st.sampled_from([[50, 50], [-1, 0], [1, 2, 3], None, "x", {}, [[]]]),
    st.booleans(),
)
def test_pointing_is_the_best_matching_and_a_point_in_no_box_never_pays(
    points, boxes, wrong, first
):
    value = score("pointing", json.dumps(points), json.dumps(boxes))
    total = len(points) + len(boxes)
    assert value == pytest.approx(2 * most_pairs(points, boxes) / total if total else 1.0)
    more = [wrong, *points] if first else [*points, wrong]
    assert score("pointing", json.dumps(more), json.dumps(boxes)) <= value


# ---- spans of time ----------------------------------------------------------------------------

span = st.builds(lambda start, length: [start, start + length], coordinate, st.integers(1, 8))
spans = st.lists(span, min_size=1, max_size=4)


def share(a, b):
    """Whole seconds in both, of those in either."""
    first, second = set(range(*a)), set(range(*b))
    return len(first & second) / len(first | second)


@settings(max_examples=150)
@given(spans, spans)
def test_spans_are_paid_by_the_matching_with_the_largest_sum(said, gold):
    few, many = sorted((said, gold), key=len)
    best = max(sum(map(share, few, chosen)) for chosen in itertools.permutations(many, len(few)))
    assert score("temporal_iou", json.dumps(said), gold) == pytest.approx(best / len(many))


# ---- text -------------------------------------------------------------------------------------

words = st.text("ab é\u0301ﬁ１\u00a0\n", max_size=8)


def distance(a, b):
    """Wagner and Fischer 1974."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def with_single_blanks(text):
    return " ".join(unicodedata.normalize("NFKC", text).split())


@settings(max_examples=200)
@given(words, words, words, st.booleans(), st.none() | words | st.lists(words, max_size=3))
def test_ocr_is_the_textbook_distance_to_the_nearest_accepted_text(
    start, middle, end, swap, aliases
):
    text, gold = start + middle + end, start + end
    text, gold = (gold, text) if swap else (text, gold)
    values = [score(name, text, gold, aliases=aliases) for name in ("ocr", "ocr_exact")]
    text, gold = with_single_blanks(text), with_single_blanks(gold)
    if not gold:
        assert values == [None, None]
        return
    others = aliases if isinstance(aliases, list) else [aliases or ""]
    right = [gold, *filter(None, map(with_single_blanks, others))]
    best = max(1 - distance(text, other) / len(other) for other in right)
    assert values == [pytest.approx(max(0.0, best)), float(text in right)]


@pytest.mark.slow
def test_texts_without_end_are_scored_in_time():
    for name in ("ocr", "ocr_exact"):
        assert score(name, "a" + " " * 10**6 + "b", "a b") == 1.0
        assert score(name, "a", "a" * 10_001) is None
        for alias in ("x" * 10_001, "x" * 10**6):  # too long to be one
            assert score(name, "EXIT", "EXIT", aliases=[alias]) == 1.0
            assert score(name, alias, "EXIT", aliases=[alias]) == 0.0
        both = ["x" * 6_000, "y" * 6_000]  # too long together
        assert [score(name, alias, "EXIT", aliases=both) for alias in both] == [1.0, 0.0]
    aliases = ["".join(random.Random(n).choices("好吃的字母", k=9_000)) for n in range(200)]
    with time_limit(10):
        assert score("ocr", "好" * 19_999, "坏" * 10_000, aliases=aliases) < 0.5


# ---- numbers ----------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12), st.sampled_from([0.0, 0.01, 0.5]))
def test_any_float_is_read_as_it_is_written(x, gold, tolerance):
    near = abs(x - gold) <= tolerance * abs(gold)
    assume(abs(abs(x - gold) - tolerance * abs(gold)) > 1e-8 * abs(gold) or x == gold)
    assert score("number", repr(x), gold, tolerance=tolerance) == float(near)
    assert score("number", f"{gold:,}", repr(gold)) == 1.0


# ---- lists and orders -------------------------------------------------------------------------

names = st.lists(st.sampled_from("abcde"), max_size=7)
phrases = ["a", "b", "c", "a and b", "and a", "1. a", "2. b", "b and c and a", "1. a and b", "z"]
phrases += ["a and z", "a, b", "b, z, a"]
written = st.lists(st.sampled_from(phrases), min_size=1, max_size=5)
wrong_items = st.sampled_from(["x", "1. x", "and x", "x and y", "no a", "a or b"])


@settings(max_examples=150)
@given(written, written, wrong_items, st.integers(0, 5))
def test_a_wrong_item_never_pays_however_it_is_written(said, gold, wrong, place):
    gold = json.dumps(gold)
    more = [*said[:place], wrong, *said[place:]]
    for name in ("list", "ordering"):
        before, after = (score(name, json.dumps(items), gold) for items in (said, more))
        assert before is None or after <= before
    assert score("list", gold, gold) == 1.0
    before = score("list", ", ".join(said), gold)
    assert score("list", ", ".join([*said, wrong]), gold) <= before
    assert score("list", ", ".join([wrong, *said]), gold) <= before


@settings(max_examples=100)
@given(names, names, st.sampled_from(["json", ", ", "\n", "; "]))
def test_list_is_the_f1_of_multisets(said, gold, how):
    def written(items):
        if not items:
            return "No Objects"
        return json.dumps(items) if how == "json" else how.join(items)

    equal = (Counter(said) & Counter(gold)).total()
    total = len(said) + len(gold)
    value = score("list", written(said), written(gold))
    assert value == pytest.approx(2 * equal / total if total else 1.0)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.permutations(range(7)), st.integers(1, 7))
def test_ordering_is_scipys_tau(order, count):
    from scipy.stats import kendalltau

    order = [n for n in order if n < count]
    said, gold = (json.dumps([f"item {n}" for n in items]) for items in (order, range(count)))
    tau = kendalltau(order, range(count)).statistic if count > 1 else 1.0
    assert score("ordering", said, gold) == pytest.approx(max(0.0, tau), abs=1e-12)


def test_orders_and_lists_of_thousands_of_items_are_scored_in_time():
    items = [str(n) for n in range(2000)]
    with time_limit(10):
        for name in ("ordering", "list"):
            assert score(name, json.dumps(items[::-1]), json.dumps(items)) == float(name == "list")
