"""Which verdict, with which first token, follows from which rows."""

from math import inf, nan

import pytest
from agreement_rows import row

from swift_vlrft.agreement.measurement import Measurement
from swift_vlrft.agreement.verdict import LIMITS, judge

TRAINER = [-3.0, -1.0, -7.0]


def rows(image=0.0, text=0.0, **more):
    """Rows whose engine is off by so much in its last token."""
    off = [[*TRAINER[:2], TRAINER[2] + size] for size in (image, text)]
    seen = {"images": 1, "place": "row 1"} | more
    return [row(off[0], TRAINER, **seen), row(off[1], TRAINER, place="row 2")]


PROMPT = {"prompt": [1, 2, 9, 9, 3], "asked": [1, 2, 9, 3], "apart": ["9 'i'", "3 'e'"]}
VIDEO = {"images": 0, "videos": 1}
LAST = "token 3 of the answer, 't2': trainer -7, engine"
CASES = {
    # The rows as loaded and after the sync, the verdict, and what its sentence ends with.
    "alike": (rows(), rows(), "agrees", "within the limits"),
    "no engine to send to": (rows(), [], "agrees", "within the limits"),
    "within the limits": (rows(3e-6, -3e-6), rows(3e-6), "agrees", "within the limits"),
    "the mean": (rows(9e-5), rows(9e-5), "numbers", "row 1, " + LAST + " -6.99991"),
    "a token": (rows(text=1e-3), rows(text=1e-3), "numbers", "row 2, " + LAST + " -6.999"),
    "no numbers": (rows(nan), rows(inf), "numbers", "row 1, " + LAST + " nan"),
    "no weights sent": (rows(), rows(0.1), "weights", "both sides agree as loaded, but not after "),
    "other weights read": (
        rows(0.1),
        rows(),
        "weights",
        "both sides agree after the sync, but not as ",
    ),
    "one side alone": (rows(0.1), [], "numbers", "row 1, " + LAST + " -6.9"),
    "a prompt": (rows(**PROMPT), rows(), "prompt", "row 1, token 4: trainer 9 'i', engine 3 'e'"),
    "a prompt and numbers": (rows(0.1, **PROMPT), rows(0.1), "prompt", "engine 3 'e'"),
    "a prompt of the second": (rows(), rows(**PROMPT), "prompt", "engine 3 'e'"),
    "timestamps": (
        rows(**PROMPT | VIDEO | {"apart": ["9 '0'", "3 '1'"]}),
        *(rows(), "prompt", "the prompts differ in the timestamps of a video: row 1, token 4"),
    ),
    "frames": (
        rows(**PROMPT | VIDEO | {"apart": ["9 '<|video_pad|>'", "3 '<|vision_end|>'"]}),
        *(rows(), "prompt", "differ in the number of a video's frames or their size: row 1"),
    ),
    "ids": (rows(**PROMPT | VIDEO), rows(), "prompt", "differ in the ids around a video: row 1"),
    "pixels": (
        *(rows(0.1, **VIDEO),) * 2,
        *("numbers", "as loaded and after the sync, with equal prompts: the frames of a video"),
    ),
    "a value less": (
        *([row([-1.0], [-1.0, -2.0])],) * 2,
        *("numbers", "row 1, token 2: trainer 2 log-probabilities, engine 1 log-probabilities"),
    ),
}


@pytest.mark.parametrize("why", CASES)
def test_verdict(why):
    loaded, synced, word, said = CASES[why]
    verdict = judge(Measurement("vLLM colocate", "m", "float32", loaded, synced))
    assert verdict.word == word and verdict.exit_code == (word != "agrees")
    assert said in verdict.said
    assert (verdict.first is None) == (word == "agrees")


def test_a_prompt_that_is_not_told_is_not_compared():
    told = judge(Measurement("vLLM server", "m", "float32", rows(prompt=[1, 2], asked=None)))
    assert told.word == "agrees"


@pytest.mark.parametrize("dtype", LIMITS)
def test_few_tokens_may_be_beyond_the_bound(dtype):
    limit = LIMITS[dtype]
    engine = [-1.0] * 1000
    for beyond, word in ((5, "agrees"), (11, "numbers")):
        engine[:beyond] = [-1.0 - limit.bound * 1.01] * beyond
        found = judge(Measurement("e", "m", dtype, [row(engine, [-1.0] * 1000)]))
        assert (found.word, found.figures["as loaded, text rows"].beyond) == (word, beyond / 1000)
    assert limit.mean > 0.01 * limit.bound


@pytest.mark.parametrize(("off", "word"), [(0.0485, "agrees"), (0.0489, "numbers")])
def test_a_ratio_of_1_05_is_too_much(off, word):
    """Though the mean is within the limit of bfloat16."""
    engine = [-1.0 - off] * 10
    found = judge(Measurement("e", "m", "bfloat16", [row(engine, [-1.0] * 10)]))
    assert found.word == word and (found.first is None) == (word == "agrees")


def test_one_token_far_apart_is_too_much():
    """In a hundred, which the share of tokens allows."""
    engine = [-9.0, *[-1.0] * 99]
    found = judge(Measurement("e", "m", "bfloat16", [row(engine, [-1.0] * 100)]))
    assert found.word == "numbers" and found.first.token == 1
