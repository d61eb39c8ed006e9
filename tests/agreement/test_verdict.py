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


BEYOND = {dtype: -1.0 - 1.01 * limit.bound for dtype, limit in LIMITS.items()}


@pytest.mark.parametrize(
    ("dtype", "engine", "word"),
    [
        *((dtype, [logp] * 5 + [-1.0] * 995, "agrees") for dtype, logp in BEYOND.items()),
        *((dtype, [logp] * 11 + [-1.0] * 989, "numbers") for dtype, logp in BEYOND.items()),
        # A ratio of 1.05 is too much, though the mean is within the limit.
        ("bfloat16", [-1.0485] * 10, "agrees"),
        ("bfloat16", [-1.0489] * 10, "numbers"),
        # One token in a hundred far apart is, too, which the share of tokens allows.
        ("bfloat16", [-9.0, *[-1.0] * 99], "numbers"),
    ],
)
def test_few_tokens_may_be_a_little_beyond_the_bound(dtype, engine, word):
    found = judge(Measurement("e", "m", dtype, [row(engine, [-1.0] * len(engine))]))
    assert found.word == word and (found.first is None) == (word == "agrees")
    assert LIMITS[dtype].mean > 0.01 * LIMITS[dtype].bound
