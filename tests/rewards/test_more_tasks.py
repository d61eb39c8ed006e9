"""Points, texts in images, numbers, lists, orders, and phrases that name nothing: by hand, by
property, against other implementations, and against the ways in which published rewards are gamed.
"""

# ruff: noqa: E501 - rows of a table stay on one line

import itertools
import json
import random
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.limits import time_limit

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.rewards import REWARDS


def answer(text):
    return f"<think>so 42, [150, 150], cat</think><answer>{text}</answer>"


def score(name, text, gold, **columns):
    columns = {key: [value] for key, value in columns.items()}
    (value,) = REWARDS[f"vlrft_{name}"]([answer(text)], [gold], **columns)
    if value is not None and value < 1.0:
        row = {key: value[0] for key, value in columns.items()}
        reason = explain(f"vlrft_{name}", answer(text), gold, **row)
        assert reason.score == value and reason.code not in ("ok", "wrong_answer")
    return value


# ---- no target --------------------------------------------------------------------------------


# ---- points -----------------------------------------------------------------------------------

coordinate = st.integers(0, 12)
points = st.lists(st.tuples(coordinate, coordinate).map(list), max_size=5)
boxes = st.lists(
    st.tuples(coordinate, coordinate, st.integers(1, 6), st.integers(1, 6)).map(
        lambda b: [b[0], b[1], b[0] + b[2], b[1] + b[3]]
    ),
    max_size=5,
)


def most_pairs(points, boxes):
    """Every way to give each point a box of its own, or none."""
    inside = [
        [j for j, b in enumerate(boxes) if b[0] <= x <= b[2] and b[1] <= y <= b[3]]
        for x, y in points
    ]
    choices = itertools.product(*([None, *found] for found in inside))
    taken = ([j for j in choice if j is not None] for choice in choices)
    return max(len(found) for found in taken if len(set(found)) == len(found))


@settings(max_examples=200, deadline=None)
@given(points, boxes)
def test_pointing_is_the_best_matching_of_all(points, boxes):
    value = REWARDS["vlrft_pointing"]([answer(json.dumps(points))], [json.dumps(boxes)])[0]
    total = len(points) + len(boxes)
    assert value == pytest.approx(2 * most_pairs(points, boxes) / total if total else 1.0)


@settings(max_examples=60, deadline=None)
@given(points, boxes, st.sampled_from([[50, 50], [-1, 0], [1, 2, 3], None, "x", {}, [[]]]))
def test_a_point_in_no_box_never_pays(points, boxes, wrong):
    before = REWARDS["vlrft_pointing"]([answer(json.dumps(points))], [json.dumps(boxes)])[0]
    for place in (0, len(points)):
        more = [*points[:place], wrong, *points[place:]]
        after = REWARDS["vlrft_pointing"]([answer(json.dumps(more))], [json.dumps(boxes)])[0]
        assert after <= before


def test_a_grid_of_points_does_not_pay():
    grid = [[x, y] for x in range(0, 1000, 50) for y in range(0, 1000, 50)]
    assert score("pointing", json.dumps(grid), "[400, 400, 460, 460]") < 0.01
    assert score("pointing", json.dumps([[430, 430]] * 9), "[400, 400, 460, 460]") == 0.2


# ---- text -------------------------------------------------------------------------------------


def distance(a, b):
    """Wagner and Fischer 1974."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


words = st.text("ab é\u0301ﬁ１\u00a0\n", max_size=14)


@settings(max_examples=300, deadline=None)
@given(words, words)
def test_ocr_is_the_textbook_distance(text, gold):
    a, b = (" ".join(unicodedata.normalize("NFKC", t).split()) for t in (text, gold))
    values = [REWARDS[f"vlrft_{n}"]([answer(text)], [gold])[0] for n in ("ocr", "ocr_exact")]
    if not b:
        assert values == [None, None]
    else:
        assert values == [pytest.approx(max(0.0, 1 - distance(a, b) / len(b))), float(a == b)]


@settings(max_examples=60, deadline=None)
@given(
    st.text("abc ", min_size=1, max_size=12), st.text("abc ", max_size=12), st.integers(0, 12),
    st.lists(st.text("abc ", max_size=12), max_size=3),
)  # fmt: skip
def test_a_letter_that_the_gold_lacks_never_pays(gold, text, place, aliases):
    assume(gold.strip())
    more = text[:place] + "z" + text[place:]
    # A letter between blanks is one, and a blank more.
    assume(place in (0, len(text)) or " " not in text)
    before, after = (score("ocr", t, gold, aliases=aliases) for t in (text, more.strip()))
    assert after <= before + 1e-12


ACCEPTED = ["ITC  Limited", "ITC Ltd.", "itc"]


@pytest.mark.parametrize(
    "column", [ACCEPTED, tuple(ACCEPTED), json.dumps(ACCEPTED), np.array(ACCEPTED)]
)
@pytest.mark.parametrize("text", ACCEPTED)
def test_every_accepted_text_earns_one(text, column):
    for name in ("ocr", "ocr_exact"):
        assert score(name, text, "ITC Limited, India", aliases=column) == 1.0
        assert score(name, "ITC Limited, India", "ITC Limited, India", aliases=column) == 1.0
    assert score("ocr", "itd", "ITC Limited, India", aliases=column) == pytest.approx(2 / 3)
    assert score("ocr_exact", "itd", "ITC Limited, India", aliases=column) == 0.0


@settings(max_examples=200, deadline=None)
@given(words, words, st.one_of(st.none(), words, st.lists(words, max_size=3)))
def test_of_several_accepted_texts_the_nearest_counts(text, gold, aliases):
    plain = [" ".join(unicodedata.normalize("NFKC", t).split()) for t in (text, gold)]
    assume(plain[1])
    given = aliases if isinstance(aliases, list) else [aliases or ""]
    right = [plain[1], *(" ".join(unicodedata.normalize("NFKC", t).split()) for t in given)]
    best = max(1 - distance(plain[0], other) / len(other) for other in right if other)
    assert score("ocr", text, gold, aliases=aliases) == pytest.approx(max(0.0, best))
    assert score("ocr_exact", text, gold, aliases=aliases) == float(plain[0] in filter(None, right))


@pytest.mark.parametrize("name", ["ocr", "ocr_exact"])
def test_blanks_without_end_are_one_and_an_alias_without_end_is_none(name):
    assert score(name, "a" + " " * 10**6 + "b", "a b") == 1.0
    for alias in ("x" * 10_001, "x" * 10**6):
        assert score(name, "EXIT", "EXIT", aliases=[alias]) == 1.0
        assert score(name, alias, "EXIT", aliases=[alias]) == 0.0


def test_many_long_aliases_take_bounded_time():
    aliases = ["".join(random.Random(n).choices("好吃的字母", k=9_000)) for n in range(200)]
    with time_limit(10):
        assert score("ocr", "好" * 19_999, "坏" * 10_000, aliases=aliases) < 0.5


# ---- numbers ----------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12), st.sampled_from([0.0, 0.01, 0.5]))
def test_any_float_is_read_as_it_is_written(x, gold, tolerance):
    near = abs(x - gold) <= tolerance * abs(gold)
    assume(abs(abs(x - gold) - tolerance * abs(gold)) > 1e-8 * abs(gold) or x == gold)
    assert score("number", repr(x), gold, tolerance=tolerance) == float(near)
    assert score("number", f"{gold:,}", repr(gold)) == 1.0


@given(
    st.integers(0, 99), st.integers(0, 99), st.sampled_from([", ", " ", "\n", " and ", ";", " | "])
)
def test_a_second_number_never_pays(gold, other, between):
    assume(gold != other)
    for text in (f"{gold}{between}{other}", f"{other}{between}{gold}"):
        assert score("number", text, str(gold)) == 0.0


# ---- lists and orders -------------------------------------------------------------------------


written = st.lists(
    st.sampled_from(["a", "b", "c", "a and b", "and a", "1. a", "2. b", "b and c and a", "1. a and b", "z", "a and z", "a, b", "b, z, a"]),
    min_size=1, max_size=5,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    written,
    written,
    st.sampled_from(["x", "1. x", "and x", "x and y", "no a", "a or b"]),
    st.data(),
)
def test_a_wrong_item_never_pays_however_it_is_written(said, gold, wrong, data):
    gold = json.dumps(gold)
    place = data.draw(st.integers(0, len(said)))
    for name in ("list", "ordering"):
        before, after = (
            score(name, json.dumps(t), gold) for t in (said, [*said[:place], wrong, *said[place:]])
        )
        assert before is None or after <= before
    assert score("list", gold, gold) == 1.0
    before = score("list", ", ".join(said), gold)
    assert score("list", ", ".join([*said, wrong]), gold) <= before
    assert score("list", ", ".join([wrong, *said]), gold) <= before


names = st.lists(st.sampled_from("abcde"), max_size=7)


@settings(max_examples=200, deadline=None)
@given(names, names, st.sampled_from(["json", ", ", "\n", "; "]))
def test_list_is_the_f1_of_multisets(said, gold, how):
    def written(items):
        if not items:
            return "No Objects"
        return json.dumps(items) if how == "json" else how.join(items)

    equal = sum(min(n, Counter(gold)[name]) for name, n in Counter(said).items())
    total = len(said) + len(gold)
    value = score("list", written(said), written(gold))
    assert value == pytest.approx(2 * equal / total if total else 1.0)
    assert score("list", written([*said, "x"]), written(gold)) <= value
    random.shuffle(said)
    assert score("list", written(said), written(gold)) == pytest.approx(value)


@settings(max_examples=200, deadline=None)
@given(st.permutations(range(7)), st.integers(1, 7))
def test_ordering_is_scipys_tau(order, count):
    from scipy.stats import kendalltau

    order = [n for n in order if n < count]
    said, gold = (json.dumps([f"item {n}" for n in items]) for items in (order, range(count)))
    tau = kendalltau(order, range(count)).statistic if count > 1 else 1.0
    expected = sorted(range(count), key=order.index)
    assert score("ordering", said, gold) == pytest.approx(max(0.0, tau), abs=1e-12)
    assert score("ordering", json.dumps([f"item {n}" for n in expected]), said) >= 0.0


def test_orders_and_lists_of_thousands_of_items_take_no_time():
    items = [str(n) for n in range(2000)]
    with time_limit(10):
        for name in ("ordering", "list"):
            assert score(name, json.dumps(items[::-1]), json.dumps(items)) == float(name == "list")


# ---- what published rewards pay for -----------------------------------------------------------
