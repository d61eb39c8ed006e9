"""Counts, option letters and yes or no: what states one, and what leaves it open."""

# ruff: noqa: E501 - rows of a table stay on one line

import random
import time

import pytest

from swift_vlrft.parsing.short_answers import choice, number, yes_no
from swift_vlrft.rewards import REWARDS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", 4), ("4.", 4), ("4.0", 4), ("**4**", 4), ("+4", 4), ("-4", -4), ("\u22124", -4),
        ("\uff14", 4), ("\u0664", 4), ("1,000", 1000), ("I count 4 dogs, so 4", 4), ("4.5", 4.5),
        ('{"count": 4}', 4), ("A320 and 4", 4), ("<|begin_of_box|>4<|end_of_box|>", 4),
        ("4 or 5", None), ("4-5", None), ("4/5", None), ("3,4", None), ("four", None),
        ("4th", None), ("4.0.0", None), ("4.10.2024", None),
        ("x4", None), ("", None), ("\u00bd", None),
    ],
)  # fmt: skip
def test_number(text, expected):
    assert number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", "A"), ("(A)", "A"), ("A)", "A"), ("A.", "A"), ("A. two dogs", "A"), ("A: dog", "A"),
        ("(A) dog", "A"), ("a", "A"), ("**B**", "B"), ("'C'", "C"), ("A. I think so", "A"),
        ("A. Washington D.C.", "A"), ("A. U.S. flag", "A"), ("B. O'Hare", "B"),
        ("A.cat B.dog", None), ("A.3 B.4", None), ("A. cat\nB.", None), ("A. cat (B. dog)", None),
        ("<|begin_of_box|>A<|end_of_box|>", "A"), ("A。", "A"), ("A、狗", "A"), ("A。狗", "A"),
        ("A、B", None), ("A、狗、B、猫", None), ("（A）、狗", "A"), ("A。B", None),
        ("A, B", None), ("A or B", None), ("AB", None), ("A B", None), ("A/B", None),
        ("A. cat\nB. dog", None), ("A) and B)", None), ("(A)(B)", None), ("A. B", None),
        ("A dog", None), ("The answer is A", None), ("not A", None), ("", None), ("(A", None),
        ("e.g. a cat", None),
    ],
)  # fmt: skip
def test_choice(text, expected):
    assert choice(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", "yes"), ("No.", "no"), ("I know it: yes", "yes"), ("YES!", "yes"),
        ("yes, yes", "yes"),
        ("Yes, it is not red", "yes"), ("not yes", None), ("not a yes", None), ("isn't yes", None),
        ("no, not yes", None), ("yes/no", None), ("yesterday", None), ("nothing", None), ("", None),
    ],
)  # fmt: skip
def test_yes_no(text, expected):
    assert yes_no(text) == expected


STATED = """4 dogs|There are 4 dogs.|There are exactly 4|The answer is 4.|Answer: 4|Answer = 4|dogs -> 4|4!|`4`|(4)
\\boxed{4}|$4$|*4*|is **4**.|<b>4</b>|<count>4</count>|four (4)|4 (four)|4 dogs in total|4 dogs, one of them black
4只狗|有4只狗|图中一共有4个人。|共计4人|答案是4|数量为4。|４只|没有其他动物，只有4只狗|图中有4只狗，所以答案是4|共有**4**个|狗的数量应该是4
4 dogs, no cats|4 dogs and no cats|No, 4 dogs|There are 4 dogs under the table|4 people around it|I see 4 dogs: 4
There are 4 dogs. The answer is 4.|I think there are 4 dogs|{"dogs": 4}|I count 4 dogs, so 4 dogs|4 dogs (left to right)
4 (two red, two blue)|4 dogs (two red, two blue)|There are 4 people (2 men and 2 women).|4 dogs (one black, three white)
# 4|## 4 dogs|4. There are 4 dogs.|How many dogs? 4|图中有4名乘客|超市里有4个人"""
OPEN = """not 4|no 4|isn't 4|isnt 4|There are not 4 dogs|never 4|without 4|neither 4|4 is wrong|4 dogs are not there|4? No.
more than 4|less than 4|fewer than 4 dogs|no more than 4|at least 4|4 at most|4 or more|4+|4+ dogs|over 4|under 4|up to 4
minus 4|negative 4|- 4|–4|+-+4|plus 4|4 plus|4+4|4/4|4*4|4x4|4 × 4|4^4|4 - 4|4 times 4|√4|2**4|10^4|!4|!=4|4 = 4
4/|4%|1/4|4½|4²|4:4|4,4|4, 4|4; 4|4 4|4 and 4|4 or 4|between 4 and 4|4 to 4|4..4|4 of 4|4 dogs and 4 cats|4 dogs, 4 cats
about 4|around 4 dogs|approx. 4|approximately 4|roughly 4|4 approximately|nearly 4|almost 4|~4|≈4|4ish|4-ish|4 or so
maybe 4|perhaps 4|possibly 4|probably 4|either 4|4 or five|4 dogs and two cats|is it 4?|4?|>4|<4|>= 4|≤4|±4|#4
第4个|约4个|4个左右|4到5个|4或5只|可能是4个|不到4个|4、5个|也许4|近4个|4万|4百|十4|4多个|4个多|4余人|几4|4分之1|百分之4|4倍|4个半
4只狗和4只猫|4只狗，4只猫|4只狗和三只猫|除了4个|不是4个|没有4个|4只以上|4～5个|最少4个|max 4|min. 4|likely 4|I guess 4
twice 4|half of 4|4 and a half|4 and counting|4 dozen|4 thousand|4k|all but 4|4 squared|4th|4 maximum|不是 4|大约 4|至少 4
anything but 4|I don't know, 4|I'm not sure, 4|no idea, 4|4, maybe|4 not|4 not not|north of 4|close to 4|超过4个|加4
4 (5)|4 (five)|4 (two red)|4 (two red, five blue)|4 (1 or 3)|4 (not 4)|4 (maybe four)|4 (四个)|4. 4 cats|# 4 or 5"""


@pytest.mark.parametrize("text", STATED.replace("\n", "|").split("|"))
def test_a_number_that_is_the_answer(text):
    assert number(text) == 4
    assert REWARDS["vlrft_counting"]([f"<answer>{text}</answer>"], ["4"]) == [1.0]


@pytest.mark.parametrize("text", OPEN.replace("\n", "|").split("|"))
def test_a_number_that_is_not_stated_as_the_answer(text):
    assert number(text) in (None, -4)
    for name in ("vlrft_counting", "vlrft_counting_soft"):
        assert REWARDS[name]([f"<answer>{text}</answer>"], ["4"]) == [0.0]


@pytest.mark.parametrize(
    "text",
    ["a) cat\nb) dog\nc) bird", "a. or b.", "A: cat b: dog", "A. b) dog", "(a) and (c)", "A and b"]
    + ["either a or b", "A. cat b. dog", "a. cat\nb. dog", "A. cat or b", "A. cat or B dog", "A. b"]
    + ["A. cat, b", "A. b, c", "A. not b", "A. option b", "A. cat. B", "A. cat\nb dog", "A: a. b"]
    + [
        "A.猫B.狗",
        "A. 猫 b. 狗",
        "A.和B",
        "A. [b]",
        "A. cat \\boxed{B}",
        "A. cat (b)",
        "A. cat → b",
    ]
    + [
        "a: cat; b: dog",
        "A. cat / b. dog",
        "A.cat b.dog",
        "a) or (b)",
        "A. cat vs. b",
        "A. maybe b",
    ],
)
def test_two_options_in_either_case_are_none(text):
    assert choice(text) is None


@pytest.mark.parametrize(
    "text",
    ["A. a dog", "a. a dog", "A) a cat or a dog", "A. I am not sure", "A. i think so", "A. cat(s)"]
    + ["A. a cat, a dog", "A. it's a boy or a girl", "A. T-shirt and X-ray", "A. Vitamin C", "(a)"]
    + ["A. at 5 p.m. today", "A. A dog", "A. A Dog", "A. Yes, a dog", "A. Plan B", "A. y = 2x + 3"]
    + [
        "A. Mr. B",
        "A. Dr. B",
        "A. St. B",
        "A. not a dog",
        "A. both a cat and a dog",
        "A. e.g. a cat",
        "A. a/b",
        "A. x",
    ],
)
def test_a_and_i_are_words(text):
    assert choice(text) == "A"


@pytest.mark.parametrize(
    ("text", "expected"),
    [(text, None) for text in ("yes and no", "yes or no?", "I would not say yes", "cannot be yes")]
    + [(text, None) for text in ("never yes", "yes is wrong", "yes isn't right", "neither yes")]
    + [
        (text, None)
        for text in ("isnt yes", "hardly a yes", "non-yes", "not no", "not exactly yes")
    ]
    + [("I do not see one, so no", "no"), ("It is not a dog - no", "no"), ("no, not at all", "no")]
    + [("Not sure. Yes", "yes"), ("There is no dog", "no"), ("**yes**", "yes")]
    + [(text, None) for text in ("maybe yes", "yes?", "I guess yes", "probably no", "yes, maybe")]
    + [(text, None) for text in ("anything but yes", "yes not not", "could be yes", "if yes")]
    + [("The dog isn't visible because there is no dog", "no"), ("Is it red? Yes.", "yes")]
    + [("Yes, it is probably a dog", "yes"), ("No. There is no dog, is there?", "no")],
)
def test_yes_and_no_are_stated_not_denied(text, expected):
    assert yes_no(text) == expected


@pytest.mark.parametrize(
    ("name", "gold", "wrong"),
    [
        (
            "vlrft_counting",
            "4",
            ["5", "or 5", "not", "5 cats", "more than", "+1", "five", "(5)", "maybe"],
        ),
        ("vlrft_choice", "A", ["B", "b)", "(b)", "or b", "B. dog", "C:", "and C"]),
        ("vlrft_yes_no", "yes", ["no", "not", "or no", "No.", "never", "maybe", "?"]),
        ("vlrft_classification", "cat", ["dog", "or dog", "not", "and a cat"]),
    ],
)
def test_what_is_added_never_raises_the_score(name, gold, wrong):
    rng = random.Random(0)
    for _ in range(500):
        words = [rng.choice([gold, *wrong]) for _ in range(rng.randint(1, 3))]
        added = list(words)
        added.insert(rng.randint(0, len(words)), rng.choice(wrong))
        before, after = (
            REWARDS[name]([f"<answer>{' '.join(text)}</answer>"], [gold])[0]
            for text in (words, added)
        )
        assert after <= before, (words, added)


@pytest.mark.parametrize("read", [number, choice, yes_no])
def test_long_answers_are_read_in_time(read):
    pieces = [
        "4 ",
        "so 4 ",
        "4, ",
        "no ",
        "yes ",
        "not yes ",
        "a. ",
        "and b ",
        "\n b",
        " ",
        "4 a ",
        "-",
    ]
    for start in ("", "A. ", "4 ", "yes "):
        for piece in pieces:
            text = (start + piece * 10_000)[:10_000]
            seconds = []
            for _ in range(3):
                begin = time.perf_counter()
                read(text)
                seconds.append(time.perf_counter() - begin)
            assert min(seconds) < 0.1, piece
