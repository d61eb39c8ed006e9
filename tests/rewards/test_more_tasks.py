"""Points, texts in images, numbers, lists, orders, and phrases that name nothing: by hand, by
property, against other implementations, and against the ways in which published rewards are gamed.
"""

# ruff: noqa: E501 - rows of a table stay on one line

import itertools
import json
import random
import time
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.parsing.answers import read
from swift_vlrft.rewards import REWARDS

BOXES = "[[100, 100, 300, 300], [500, 100, 700, 300]]"


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


@pytest.mark.parametrize("name", ["grounding_iou", "grounding_giou", "grounding_acc50", "pointing"])
@pytest.mark.parametrize("gold", ["No Objects", "<answer>none</answer>", "[]", [], '{"boxes": []}'])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No Objects", 1.0), ("no objects.", 1.0), ("None", 1.0), ("[]", 1.0), ('{"objects": []}', 1.0),
        ("[1, 2, 30, 40]", 0.0), ("[1, 2]", 0.0), ("[[9, 9, 1, 1]]", 0.0), ("no", 0.0), ("", 0.0),
        ("nothing", 0.0), ("No Objects [1, 2, 30, 40]", 0.0), ("[0, 0]", 0.0), ("no objects, or [5, 5]", 0.0),
    ],
)  # fmt: skip
def test_a_phrase_that_names_nothing(name, gold, text, expected):
    if name == "pointing" and "boxes" in gold:
        gold = "None"
    assert score(name, text, gold) == expected


@pytest.mark.parametrize("name", ["grounding_iou", "grounding_giou", "grounding_acc50", "pointing"])
@pytest.mark.parametrize("text", ["No Objects", "[]", "none"])
def test_saying_that_nothing_is_there_where_something_is(name, text):
    assert score(name, text, "[100, 100, 200, 200]") == 0.0


# ---- points -----------------------------------------------------------------------------------

TWO_POINTS = [
    "[[200, 200], [600, 200]]",
    "(200, 200), (600, 200)",
    "[200, 200] and [600.0, 2e2]",
    '```json\n[{"point_2d": [200, 200], "label": "dog"}, {"point_2d": ["600", "200"]}]\n```',
    "[{'point': [200, 200]}, {'point': [200, 600]}]",
    '{"points": [[200, 200], [600, 200]]}',
    '{"point_2d": [[200, 200], [600, 200]]}',
    '{"action": "click", "coordinate": [200, 200]} {"action": "click", "coordinate": [600, 200]}',
    '<tool_call>{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [200, 200]}}'
    "</tool_call> (600, 200)",
    '<point x="200" y="200" alt="a dog">a dog</point><point y=\'200\' x=\'600.0\'>dog</point>',
    '<points x1="200" y1="200" x2="600" y2="200" alt="dogs, x3=\'1\'">dogs</points>',
    "<point>200 200</point><point>600, 200</point>",
    "<point>[200, 200]</point> <point>(600, 200)</point>",
    "<point x=200 y=200/>\n<POINT x='1'/><point x = '600' y = '200' />",
    "[(200, 200), (600.0, 200)]",
    "click(start_box='(200,200)') click(start_box='(600,200)')",
    "((200, 200), (600, 200))",
    "<|box_start|>(200,200)<|box_end|><|box_start|>(600,200)<|box_end|>",
    "<|begin_of_box|>[[200, 200], [600, 200]]<|end_of_box|>",
]  # fmt: skip


@pytest.mark.parametrize("text", TWO_POINTS)
def test_the_forms_of_points(text):
    assert sorted(read(answer(text)).points) == [(200.0, 200.0), (600.0, 200.0)]
    assert score("pointing", text, BOXES) == 1.0
    # y-first alone differs where x and y are exchanged
    assert score("pointing", text, "[[150, 150, 250, 250], [150, 550, 250, 650]]") == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200, 200", 2 / 3), ("[200, 200]", 2 / 3), ("[100, 300]", 2 / 3),  # on the corner
        ("[99.9, 300]", 0.0), ("[200, 200], [210, 210]", 0.5),  # two in one box
        ("[[200, 200], [600, 200], [5, 5]]", 0.8), ("[[200, 200], [600, 200], [1, 2, 3]]", 0.8),
        ("[[200, 200], [600, 200], ['NaN', 200]]", 0.8), ("[[200, 200], [600, 200], []]", 0.8),
        ('[[200, 200], [600, 200], {"label": "dog"}]', 0.8), ("[[200, 200], [600, 200], null]", 0.8),
        ("[[200, 200], [600, 200], 7]", 0.8), ("[[200, 200], [600, 200], [true, 200]]", 0.8),
        ("[[200, 200], [600, 200], [1e999, 200]]", 0.8),
        ("[100, 100, 300, 300]", 0.0), ("[[100, 100, 300, 300], [500, 100, 700, 300]]", 0.0),  # boxes
        ("<|box_start|>(150,150),(250,250)<|box_end|>", 0.0), ("<box>(150, 150) (250, 250)</box>", 0.0),
        ("[200, 200] <|box_start|>(510,110),(690,290)<|box_end|>", 0.5), ("<box>[[150, 150, 250, 250]]</box>", 0.0),
        ("[200, 200, 600, 200]", 0.0), ("the dog", 0.0), ("200 200", 0.0), ("[200]", 0.0), ("x=200", 0.0),
        ('{"point": [200, 600]}', 2 / 3), ('{"point_2d": [200, 600]}', 0.0), ('{"x": 200, "y": 200}', 0.0),
        ('{"point_2d": [9, 9], "coordinate": [200, 200]}', 0.0),  # the first key counts, once
        ("[[200, 200], [600, 200]", 0.0),  # cut off
    ],
)  # fmt: skip
def test_pointing_by_hand(text, expected):
    assert score("pointing", text, BOXES) == pytest.approx(expected)


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


@pytest.mark.parametrize(
    ("text", "gold", "expected", "exact"),
    [
        ("Grand  Hôtel", "Grand\nHo\u0302tel ", 1.0, 1.0), ("grand hôtel", "Grand Hôtel", 9 / 11, 0.0),
        ("４２", "42", 1.0, 1.0), ("42", "4 2", 2 / 3, 0.0), ("", "a", 0.0, 0.0), ("aaa", "a", 0.0, 0.0),
        ("The sign says: EXIT", "EXIT", 0.0, 0.0), ("EXIT EXIT", "EXIT", 0.0, 0.0),  # more than twice
        ("[12, 30]", "[12, 30]", 1.0, 1.0), ("No Objects", "No Objects", 1.0, 1.0),
        ("<|begin_of_box|>EXIT<|end_of_box|>", "EXIT", 1.0, 1.0), ("a" + " " * 10**6 + "b", "a b", 1.0, 1.0),
    ],
)  # fmt: skip
def test_ocr_by_hand(text, gold, expected, exact):
    assert score("ocr", text, gold) == pytest.approx(expected)
    assert score("ocr_exact", text, gold) == exact


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


@pytest.mark.parametrize(
    "aliases", [None, [], "", [" ", None], ["x" * 10_001], ["x" * 10**6], "[", {"a": 1}]
)
def test_aliases_that_say_nothing_change_nothing(aliases):
    assert score("ocr", "EXIT", "EXIT", aliases=aliases) == 1.0
    assert (
        score("ocr", "", "EXIT", aliases=aliases)
        == score("ocr_exact", "", "EXIT", aliases=aliases)
        == 0.0
    )


@pytest.mark.parametrize(
    ("alias", "text"), [("1.50", "1.50"), ("007", "007"), ("true", "true"), ('"a"', '"a"')]
)
def test_an_alias_that_reads_as_json_is_the_text_that_it_is(alias, text):
    assert score("ocr_exact", text, "other", aliases=alias) == 1.0


def test_many_long_aliases_take_bounded_time():
    aliases = ["".join(random.Random(n).choices("好吃的字母", k=9_000)) for n in range(200)]
    start = time.process_time()
    assert score("ocr", "好" * 19_999, "坏" * 10_000, aliases=aliases) < 0.5
    assert time.process_time() - start < 1.0  # the reward twice and its reason


@pytest.mark.parametrize("task", ["ocr", "number", "counting", "choice"])
def test_a_list_is_no_gold_where_one_text_is_asked_for(task):
    for gold in (["a", "4"], {"A": 4}, [["A"]]):
        assert REWARDS[f"vlrft_{task}"]([answer("4")], [gold]) == [None]
    assert REWARDS["vlrft_ocr"]([answer("ITC")], [["ITC"]]) == [None]


@pytest.mark.parametrize(
    "gold", [{"a": 1}, '{"a": 1}', "{'items': ['a', 'b']}", '<answer>{"colors": ["a"]}</answer>']
)
def test_an_object_is_no_list(gold):
    for task in ("list", "ordering"):
        assert REWARDS[f"vlrft_{task}"]([answer("a")], [gold]) == [None]
    assert score("list", "a, b", '{"a", "b"}') == score("list", "a, b", "{a, b}") == 1.0


def test_the_reasoning_and_the_tags_are_no_text():
    whole = "<think>EXIT</think><answer>ENTRY</answer>"
    assert REWARDS["vlrft_ocr"]([whole], ["EXIT"]) == [
        pytest.approx(1 - distance("ENTRY", "EXIT") / 4)
    ]
    assert REWARDS["vlrft_ocr"](["EXIT", "<answer>EXIT"], ["EXIT"] * 2) == [0.0, 0.0]


# ---- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["1250.5", "1,250.5", "+1250.50", "$1,250.5", "1.2505e3", "1250.5 kg", "1250.5kg", "1250.5 %", "1250.5\\%",
     "€ 1250.5", "1250.5€", "US$1,250.50", "**1250.5**", "It is 1,250.5.", "1250.5 dollars", "x = 1250.5",
     "1250.5. So: 1,250.50", "\\boxed{1250.5}", "12505e-1 min", "１２５０.５", "1250.5m²", "1250.5 km/h",
     "1250.5 ft²", "1250.5 m^2", "1250.5 kg/m^{3}", "1250.5 m/s²", "1250.5Ω", "١٬٢٥٠٫٥", "1250.5 N/m^2"],
)  # fmt: skip
def test_forms_of_one_number(text):
    assert score("number", text, "1250.5") == 1.0
    assert REWARDS["vlrft_number"].task.read_gold(text) == 1250.5


@pytest.mark.parametrize(
    "text",
    ["4 or 5", "4-5", "4 to 5", "between 4 and 5", "not 4", "about 4", "~4", "at least 4", "4+", "4?", "4th", "A4",
     "four", "", "4.4.4", "4/2", "4^2", "4²", "4k", "4M", "4 million", "4 x 4", "4 of 4", "4, 5", "4:30", "1e999",
     "nan", "inf", "0x4", "4_0", "2024-04-04", "4 and 40", "maybe 4", "4 bn", "4 mln", "4 trillion", "4 lakh", "約4", "4 m² 5", "4^2 m", "x^2 = 4", "m^4", "4 is wrong", "٤٥ 4", "4 " * 30, "half 4"],
)  # fmt: skip
def test_what_states_no_one_number(text):
    assert REWARDS["vlrft_number"]([answer(text)] * 2, ["4", "0.4"], tolerance=[0.9, None]) == [
        0,
        0,
    ]
    assert REWARDS["vlrft_number"]([answer("4")], [text]) == [None]


@pytest.mark.parametrize(
    ("text", "gold", "tolerance", "expected"),
    [
        ("0.3", "0.1", None, 0.0), ("0.30000000000000004", "0.3", None, 1.0), ("3.14", "3.14159", None, 0.0),
        ("105", "100", 0.05, 1.0), ("105.1", "100", 0.05, 0.0), ("95", "100", "0.05", 1.0), ("0.77", "0.7", 0.1, 1.0),
        ("-95", "-100", 0.05, 1.0), ("-100", "100", 0.5, 0.0), ("0", "0", 0.5, 1.0), ("0.1", "0", 0.5, 0.0),
        ("101", "100", None, 0.0), ("101", "100", float("nan"), 0.0), ("101", "100", "", 0.0),
        ("101", "100", -1, 0.0), ("101", "100", "wide", 0.0), ("101", "100", float("inf"), 0.0),
        ("101", "100", True, 0.0), ("45%", "45", None, 1.0), ("0.45", "45%", None, 0.0), ("-0", "0", None, 1.0),
        ("1e300", "1e-300", None, 0.0),
    ],
)  # fmt: skip
def test_number_within_its_tolerance(text, gold, tolerance, expected):
    assert score("number", text, gold, tolerance=tolerance) == expected


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


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ('["red", "Dark-Blue"]', "dark blue, red", 1.0), ("red\n- dark blue\n", "['red', 'dark_blue']", 1.0),
        ("red; dark blue;", '["red", "dark blue"]', 1.0), ("('red', 'dark blue')", "red, dark blue", 1.0),
        ("```json\n[\"red\", 'it\\'s']\n```", "red\nit's", 1.0), ("[3, 4.5]", '["4.5", "3"]', 1.0),
        ("a, b; c", "['a, b', 'c']", 1.0), ("a", "a", 1.0), ("[]", "none", 1.0), ("No Objects", "[]", 1.0),
        ("a, b, c", "a, b", 0.8), ("a, a, b", "a, b", 0.8), ("a, a", "a, a", 1.0), ("a", "a, a", 2 / 3),
        ("a, b", "b, a", 1.0), ("not a", "a", 0.0), ("ab", "a, b", 0.0), ("none", "a", 0.0), ("a", "none", 0.0),
        ("", "a", 0.0), ("", "none", 0.0), (" ;\n, ", "none", 0.0), (",", "a", 0.0), ('[["a"], "b"]', "a, b", 0.5), ("[true, null]", "True, None", 0.0),
        ('["a", "b"] ["c"]', "a, b, c", 0.4), ("a or b", "a", 0.0), ("..., a", "a", 2 / 3), ('{"a": 1}', "a", 0.0),
    ],
)  # fmt: skip
def test_list_by_hand(text, gold, expected):
    assert score("list", text, gold) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "1. red\n2. dark blue", "1) red\n2) dark blue", "(1) red\n(2) dark blue", "1.red\n2.dark blue", "1、red\n2、dark blue",
        "- red\n- dark blue", "* red\n* dark blue", "• red\n• dark blue", "– red\n– dark blue", "red and dark blue",
        "red, and dark blue", "Red, and Dark Blue.", '["1. red", "2. dark blue"]', "1. 'red'\n2. \"dark blue\"",
        "1. red; 2. dark blue", "1. red, 2. dark blue", "**red**\n**dark blue**", "1. **Red**\n2. **Dark-Blue**",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "gold", ['["red", "dark blue"]', "red\ndark blue", "1. red\n2. dark blue", "red, and dark blue"]
)
def test_lists_as_people_write_them(text, gold):
    assert score("list", text, gold) == 1.0
    assert score("ordering", text, gold) == 1.0
    assert score("list", text, '["red", "dark blue", "green"]') == 0.8


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        # Names that have a number or "and" of their own stay one item.
        ("1. FC Köln, Bayern", '["1. FC Köln", "Bayern"]', 1.0), ("FC Köln, Bayern", '["1. FC Köln", "Bayern"]', 0.5),
        ("1. Bundesliga", '["1. Bundesliga", "2. Bundesliga"]', 2 / 3), ("2. Bundesliga\n1. Bundesliga", '["1. Bundesliga", "2. Bundesliga"]', 1.0),
        ("salt and pepper", '["salt and pepper"]', 1.0), ("salt and pepper, oil", '["oil", "salt and pepper"]', 1.0),
        ("salt, pepper", '["salt and pepper"]', 0.0), ("And Then There Were None, Emma", '["Emma", "And Then There Were None"]', 1.0),
        ("red, green and blue", '["red", "green", "blue"]', 1.0), ("red and green, blue", '["red", "green", "blue"]', 1.0),
        ("red and green and blue", '["red", "green", "blue"]', 1.0), ("12:30, 3.5", '["12:30", "3.5"]', 1.0),
        # A further item costs, however it is joined; a choice is no item.
        ("red and green", '["red"]', 2 / 3), ("red and x and y", '["red"]', 0.5), ("red or green", '["red"]', 0.0),
        ("red and/or green", '["red"]', 0.0), ("red and red", '["red"]', 2 / 3), ("x and y", '["red"]', 0.0),
        ("1. red\n2. red", '["red"]', 2 / 3), ("1. 2. red", '["red"]', 0.0), ("1.", '["1"]', 1.0), ("and", '["red"]', 0.0),
        # Nor do commas part what the gold has as one.
        ("Paris, France", '["Paris, France"]', 1.0), ("Rome, Paris, France", '["paris, france", "Rome"]', 1.0),
        ("Paris, France\nRome", '["Paris, France", "Rome"]', 1.0), ("Paris, Rome, France", '["Paris, France", "Rome"]', 0.4),
        ("北京，中国", '["北京，中国"]', 1.0), ("a, b", '["a", "b", "a, b"]', 0.8), ("a,b,c, d", '["a, b, c", "d"]', 1.0),
        ("1. 5\n2. 7", '["5", "7"]', 1.0), ("5, 7", "1. 5\n2. 7", 1.0), ("1.5", '["5"]', 0.0), ("1.5, 2.5", "1.5\n2.5", 1.0),
        # A number keeps its sign.
        ("-5, 5", '["-5", "5"]', 1.0), ("5, 5", '["-5", "5"]', 0.5), ("\u22125", "[-5]", 1.0), ("5", "[-5]", 0.0), ("-0.5", '["0.5"]', 0.0),
    ],
)  # fmt: skip
def test_numbers_and_conjunctions_open_no_hole(text, gold, expected):
    assert score("list", text, gold) == pytest.approx(expected)


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


@pytest.mark.parametrize(
    "text",
    [
        "a, b",
        "a, b, c, d",
        "a, b, c, c",
        "a, b, x",
        "a, a, a",
        "",
        "none",
        "c, b, a",
        "a b c",
        "A, B, [C",
    ],
)
def test_an_order_of_other_items_earns_nothing(text):
    assert score("ordering", text, "a, b, c") == (1.0 if "[" in text else 0.0)


def test_orders_and_lists_of_thousands_of_items_take_no_time():
    items = [str(n) for n in range(2000)]
    start = time.perf_counter()
    for name in ("ordering", "list"):
        assert score(name, json.dumps(items[::-1]), json.dumps(items)) == float(name == "list")
    assert time.perf_counter() - start < 1.0


# ---- what published rewards pay for -----------------------------------------------------------

HOLES = [
    # edit distance or math_verify on the whole completion; numbers of the reasoning
    ("number", "no idea", "42", "R1-V, VLM-R1: the number of the reasoning"),
    ("number", "41 42 43 44", "42", "float in text"),
    ("number", "142", "42", "substring"),
    ("number", "42.9", "42", "within 5 %: Reason-RFT"),
    ("number", "10 42", "10", "the first number of several"),
    ("number", "3, 7, 42", "42", "Vero: any number of the answer that fits"),
    ("number", "6 * 7", "42", "Vero: what sympy makes of the answer"),
    ("ordering", "2 of the 3 first, 1 last: 2, 3, 1", "2, 3, 1", "Vero: every number in the prose"),
    ("ordering", "1, 3, 2, 4, 5, 6", "6, 5, 4, 2, 3, 1", "Vero: a share for what stands in its place"),
    ("pointing", json.dumps([[200, 200], *[[5, n] for n in range(12)]]), "[100, 100, 300, 300]", "Vero: the first point counts, the others are free"),
    ("list", "cat, dog, cow, hen, pig, fox, owl, bee, ant, elk", "cat", "every item in: recall alone"),
    ("list", "cat cat cat", "cat", "repeated in one item"),
    ("ocr", "E" * 40, "EXIT", "similarity by length of the longer text"),
    ("ocr", "EXIT / ENTRY / OPEN", "EXIT", "every guess at once: containment, as VLM-R1's text match"),
    ("ocr_exact", "EXIT or ENTRY", "EXIT", "substring, as in VLM-R1's and GUI-R1's text match"),
    ("pointing", "[100, 100, 300, 300]", "[100, 100, 300, 300]", "a box for a point: its first two numbers"),
    ("pointing", "[[-1000000, 150]]", "[100, 100, 300, 300]", "within 140 px: GUI-R1"),
    ("pointing", "the centre", "[100, 100, 300, 300]", "a point of the reasoning"),
    ("ordering", "a, b, c, d", "d, c, b, a", "the set of items alone"),
    ("ordering", "a", "a, b, c", "a part in the right order"),
    ("grounding_iou", "[1, 2, 3, 4]", "No Objects", "VLM-R1 raises; no box, no penalty"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "gold", "why"), HOLES)
def test_holes_of_published_rewards(name, text, gold, why):
    assert score(name, text, gold) <= 0.2, why
