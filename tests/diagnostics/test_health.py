"""What each surface says of bad runs and of healthy ones: the log of training, `vlrft score`,
`vlrft compare` and the report. The runs are written by this file.
"""

import json
import logging
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from itertools import pairwise
from pathlib import Path

import pytest
from support.command_line import vlrft

from swift_vlrft.diagnostics import watch as watching
from swift_vlrft.diagnostics.health import Facts, group_of, judge
from swift_vlrft.diagnostics.watch import watch
from swift_vlrft.evaluation.compare import Difference, verdict
from swift_vlrft.report.run_log import of_series
from swift_vlrft.rewards import REWARDS

IOU, LABEL, COUNT = "vlrft_detection_iou", "vlrft_classification", "vlrft_counting"
GROUPS, EACH = 8, 8
HELD_OUT = 60
NOTHING = "No Objects"
CLASSES = ("cat", "dog", "cow", "hen")


def block(text, thought="I look."):
    return f"<think>{thought}</think><answer>{text}</answer>"


def boxes(*corners, confidence=1):
    return str([{"Position": list(corners), "Confidence": confidence}])


def corners_of(gold):
    return json.loads(re.search(r"\[[\d, ]+\]", gold)[0])


def placed(n, rng):
    """9 % of the golds are empty. Wide boxes off the diagonal: y first, they match nothing."""
    if n % 11 == 3:
        return NOTHING
    x, y = rng.randrange(500, 700), rng.randrange(50, 200)
    return boxes(x, y, x + 200, y + 50)


def named(n, rng):
    return CLASSES[n % 4]


def counted(n, rng):
    return str(n % 7)


# ---- what is said of row n, whose gold is known, at t of 0 to 1 --------------------------------


def constant(text):
    return lambda *_: block(text)


def beside(*away):
    """A box that far beside the gold's, by one of these; to the gold's nothing, nothing."""

    def said(n, gold, rng, t):
        if gold == NOTHING:
            return block(NOTHING)
        far = rng.choice(away)
        return block(boxes(*(c + rng.choice((-1, 1)) * far for c in corners_of(gold))))

    return said


def right(share):
    """With this probability right, else another of the golds' kind."""

    def said(n, gold, rng, t):
        others = [c for c in CLASSES if c != gold] if gold in CLASSES else [str(int(gold) + 1)]
        return block(gold if rng.random() < share else rng.choice(others))

    return said


def misread(change):
    """The gold's corners, changed."""

    def said(n, gold, *_):
        if gold == NOTHING:
            return block("[0.1, 0.1, 0.2, 0.2]")
        return block(str(change(*corners_of(gold))))

    return said


def halves(share, sure):
    """Right for this share of the rows; ``sure``: the confidence of a right and of a wrong box."""

    def said(n, gold, *_):
        ok = n * 7 % HELD_OUT < share * HELD_OUT
        if gold == NOTHING:
            return block(NOTHING)
        return block(boxes(*(c - 50 * (not ok) for c in corners_of(gold)), confidence=sure[not ok]))

    return said


EMPTY = ((0, 4), (3 / 49, 41), (8 / 49, 60), (40 / 49, 64), (1, 64))
"""Of the 64 completions of a step: as a run was seen to collapse."""


def collapsing(n, gold, rng, t):
    (a, low), (b, high) = next(pair for pair in pairwise(EMPTY) if t <= pair[1][0])
    empty = low + (high - low) * (t - a) / (b - a)
    return block(NOTHING) if rng.random() < empty / 64 else beside(90)(n, gold, rng, t)


Said = Callable[..., str]


@dataclass
class Case:
    """``before`` and ``after``: the answers to held-out rows, as in training if not given."""

    reward: str
    golds: Said
    train: Said
    before: Said | None = None
    after: Said | None = None
    steps: int = 12


PROSE = "There is something in the upper right of the picture."

BAD = {
    "collapse to empty": Case(
        IOU, placed, collapsing, constant(boxes(10, 10, 300, 300)), constant(NOTHING), steps=50
    ),
    "constant answer": Case(IOU, placed, constant(boxes(500, 50, 900, 250)), beside(30)),
    "one class for all": Case(
        LABEL,
        named,
        lambda n, gold, rng, t: right(0.5)(n, gold, rng, t) if t < 0.3 else block("cat"),
    ),
    "boxes that cannot be read": Case(IOU, placed, misread(lambda *box: [*box, 1])),
    "wrong unit": Case(IOU, placed, misread(lambda *box: [c / 1000 for c in box])),
    "y first": Case(IOU, placed, misread(lambda x1, y1, x2, y2: [y1, x1, y2, x2])),
    "no format": Case(
        LABEL,
        named,
        lambda n, gold, rng, t: PROSE if rng.random() < t else right(0.5)(n, gold, rng, t),
        after=lambda n, gold, *_: block(gold) if n % 6 == 0 else PROSE,
    ),
    "format never seen": Case(LABEL, named, lambda *_: PROSE),
    "reward flat at 1": Case(LABEL, named, right(1)),
    "reward flat at 0": Case(COUNT, counted, right(0)),
    "AP down while the reward is up": Case(
        IOU, placed, beside(2, 9, 50), halves(0.5, (0.9, 0.1)), halves(0.65, (0.1, 0.9))
    ),
    "zero variance": Case(
        LABEL,
        named,
        lambda n, gold, rng, t: block(gold if n % 2 else f"a {rng.choice('xyz')}"),
        right(0.5),
        right(0.5),
    ),
}
HEALTHY = {
    "boxes become better": Case(
        IOU,
        placed,
        lambda n, gold, rng, t: beside(2, 60 - 50 * t)(n, gold, rng, t),
        beside(20, 20, 2),
        beside(2),
    ),
    "learns the format": Case(
        LABEL,
        named,
        lambda n, gold, rng, t: (
            right(0.3 + t / 2)(n, gold, rng, t) if rng.random() < 0.3 + t else PROSE
        ),
        right(0.2),
        right(0.9),
    ),
    "most golds are empty": Case(
        IOU,
        lambda n, rng: NOTHING if n % 3 else placed(0, rng),
        beside(2, 9, 40),
        beside(20),
        beside(2),
    ),
}
CASES = BAD | HEALTHY
TABLE = list(map(json.loads, Path(__file__).with_name("health.jsonl").open()))
"""Of a run: log, score and report say ``found``; compare and report ``word`` and ``why``."""
TOLD = {row["run"]: row for row in TABLE if "run" in row}


def rounds(case):
    """(step, prompts, golds, completions) of each step."""
    rng = random.Random(1)
    for step in range(case.steps):
        t = step / (case.steps - 1)
        numbers = [step * GROUPS + n // EACH for n in range(GROUPS * EACH)]
        of_group = {n: case.golds(n, random.Random(n)) for n in numbers}
        golds = [of_group[n] for n in numbers]
        texts = [case.train(n, of_group[n], rng, t) for n in numbers]
        yield step + 1, [f"question {n}" for n in numbers], golds, texts


def write_run(case, folder):
    folder.mkdir()
    answers, log = ((folder / f"{name}.jsonl").open("w") for name in ("completions", "logging"))
    with answers, log:
        for step, prompts, golds, texts in rounds(case):
            scores = REWARDS[case.reward](texts, golds)
            table = {"step": [str(step)] * len(texts), "prompt": prompts, "completion": texts}
            answers.write(json.dumps(table | {"solution": golds, case.reward: scores}) + "\n")
            line = {f"rewards/{case.reward}/mean": sum(scores) / len(scores)}
            log.write(json.dumps(line | {"global_step/max_steps": f"{step}/{case.steps}"}) + "\n")
    return folder


def write_answers(case, said, t, path):
    rng = random.Random(2)
    with path.open("w") as file:
        for n in range(HELD_OUT):
            gold = case.golds(n, random.Random(n))
            row = {"id": str(n), "image_id": str(n), "solution": gold, "prompt": "Which?"}
            more = {"task": REWARDS[case.reward].task.name, "category": "thing", "width": 1000}
            more |= {"height": 1000, "frame": "norm1000", "completion": said(n, gold, rng, t)}
            file.write(json.dumps(row | more) + "\n")
    return path


@pytest.fixture
def log(monkeypatch, caplog):
    monkeypatch.setattr(watching, "_said", set())
    caplog.set_level(logging.WARNING, logger="swift_vlrft")
    return caplog


def test_answers_of_one_prompt_are_a_group_whatever_was_looked_at():
    """ms-swift logs the turns before an answer as its prompt: a group by call has no variance."""
    rows = [
        {"prompt": f"Which digit? call {n}", "turns": [{"text": f"call {n}"}], "solution": "7"}
        for n in range(8)
    ]
    assert len({group_of(row) for row in rows}) == 1
    assert group_of(rows[0]) == group_of({"prompt": "Which digit? ", "solution": "7"})
    assert group_of(rows[0]) != group_of(rows[0] | {"solution": "4"})


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_log_score_compare_and_report_say_what_is_wrong_first(name, tmp_path, log):
    case, (found, word, why) = CASES[name], (TOLD[name][key] for key in ("found", "word", "why"))
    watched, said = watch(case.reward, REWARDS[case.reward]), {}
    for step, prompts, golds, texts in rounds(case):
        watched(texts, golds, prompt_id=prompts)
        said |= {one: said.get(one, step) for one in log.messages}
    ours = {one: step for one, step in said.items() if "box format" not in one}
    assert bool(ours) == (found is not None)
    assert not ours or min(step for one, step in ours.items() if found in one) <= 9
    folder = write_run(case, tmp_path / "run")
    scored = vlrft("score", folder / "completions.jsonl")
    told = scored.output
    assert (scored.exit_code == 1) == (found is not None) or "box format" in told
    assert told.startswith("problem: ") == (found is not None)
    assert found is None or found in told.splitlines()[0]
    for one in (told, *log.messages):  # why boxes are misplaced, once, and no other advice
        assert one.count("misplaced") <= 1 and ("misplaced" in one) + ("--show" in one) <= 1
    a, b = (
        write_answers(case, said or case.train, t, tmp_path / f"{t}.jsonl")
        for t, said in enumerate((case.before, case.after))
    )
    told = vlrft("compare", a, b, "--bootstrap", "300").output
    assert told.startswith(f"{word}: ") and why in told.splitlines()[0], told
    assert not vlrft(
        "report", folder, "--eval", a, "--eval", b, "--out", tmp_path / "r.html"
    ).exit_code
    page = unescape((tmp_path / "r.html").read_text())
    top = page.split("</h1>")[1].split('<div class="headline">')[0]
    assert f"<b>{word.capitalize()}:</b>" in top and why in top
    assert ("At the end of training" in top) == (found is not None)
    assert found is None or found in top


@pytest.mark.parametrize(
    ("facts", "code"), [(row["facts"], row["code"]) for row in TABLE if "facts" in row]
)
def test_the_worst_is_found_and_what_is_common_is_not(facts, code):
    found = judge(Facts(IOU, "the 64 answers", **facts))
    assert (found and found.code) == code
    of_format = Facts("vlrft_format", "the 64 answers", flat=1, zero_variance=1.0)
    assert judge(of_format) is None  # a format that is kept


@pytest.mark.parametrize(
    ("more", "codes"), [(row["series"], row["codes"]) for row in TABLE if "series" in row]
)
def test_a_log_without_completions_is_judged_by_its_steps(more, codes):
    series = {f"rewards/{IOU}/mean": [0.3] * 8} | more
    points = {name: list(enumerate(values)) for name, values in series.items()}
    assert [found.code for found in map(judge, of_series(points)) if found] == codes


UP, DOWN, LEVEL = (Difference(0.5, 0.5 + by, by, by - 0.05, by + 0.05) for by in (0.2, -0.2, 0.01))


@pytest.mark.parametrize(
    ("ap", "iou", "rows", "word", "why"),
    [
        (UP, UP, 60, "better", "AP 0.500 -> 0.700 (difference +0.150 to +0.250)"),
        (UP, UP, 9, "not proven", "9 rows are too few"),
        (UP, DOWN, 60, "not proven", "vlrft_detection_iou fell by -0.200"),
        (LEVEL, LEVEL, 60, "not proven", "chance"),
        (DOWN, UP, 60, "worse", "pays for something else"),
        (DOWN, DOWN, 60, "worse", "AP 0.500 -> 0.300"),
        (Difference(None, 0.1, None), UP, 60, "not proven", "cannot be computed"),
    ],
)
def test_a_verdict_needs_a_sure_rise_that_nothing_contradicts(ap, iou, rows, word, why):
    metrics = {"AP": ap, IOU: iou}
    found = verdict(metrics, "AP", IOU, rows, None)
    assert found.word == word and why in found.why
    collapse = judge(Facts(IOU, "the 60 answers", empty=(1.0, 0.1)))
    assert verdict(metrics, "AP", IOU, rows, collapse).word != "better"
