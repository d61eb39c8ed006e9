"""What each surface says of twelve bad runs and four healthy ones: the log of training, `vlrft
score`, `vlrft compare` and the report. The runs are written by this file.
"""

import json
import logging
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
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


def near(gold, rng, away):
    """A box of ``away`` beside the one of the gold; to the gold's nothing, nothing."""
    if gold == NOTHING:
        return NOTHING
    corners = json.loads(re.search(r"\[[\d, ]+\]", gold)[0])
    return boxes(*(c + rng.choice((-1, 1)) * away for c in corners))


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


def right(gold, rng, share):
    """With this probability right, else another of the golds' kind."""
    if rng.random() < share:
        return block(gold)
    others = [c for c in CLASSES if c != gold] if gold in CLASSES else [str(int(gold) + 1)]
    return block(rng.choice(others))


EMPTY = {1: 4, 4: 41, 9: 60, 41: 64}
"""Of the 64 completions of a step: as a run was seen to collapse."""


def empties(t):
    """How many at step ``t``, in a line between those that were seen."""
    (a, low), (b, high) = (
        max(p for p in EMPTY.items() if p[0] <= t),
        min((p for p in EMPTY.items() if p[0] >= t), default=(t, 64)),
    )
    return low if a == b else low + (high - low) * (t - a) / (b - a)


def collapsing(t, steps, n, gold, rng):
    step = round(1 + t * 49)
    return block(NOTHING if rng.random() < empties(step) / 64 else near(gold, rng, 90))


def halves(gold, n, share, sure):
    """Right for this share of the rows; ``sure``: the confidence of a right and of a wrong box."""
    ok = n * 7 % HELD_OUT < share * HELD_OUT
    if gold == NOTHING:
        return block(NOTHING)
    corners = json.loads(re.search(r"\[[\d, ]+\]", gold)[0])
    moved = corners if ok else [c - 50 for c in corners]
    return block(boxes(*moved, confidence=sure[not ok]))


Said = Callable[..., str]


@dataclass
class Case:
    """``train(t, steps, n, gold, rng)``: a completion at t of 0 to 1; ``before`` and ``after``:
    the answers to held-out row n. ``found`` is said by log, score and report; ``word`` and ``why``
    by compare and report.
    """

    reward: str
    golds: Said
    train: Said
    before: Said
    after: Said
    found: str | None
    word: str
    why: str
    steps: int = 12


def constant(text):
    return lambda *_: block(text)


def kept(share):
    return lambda n, gold, rng: right(gold, rng, share)


def read_wrongly(change):
    def said(gold):
        if gold == NOTHING:
            return block("[0.1, 0.1, 0.2, 0.2]")
        return block(str(change(*json.loads(re.search(r"\[[\d, ]+\]", gold)[0]))))

    return {
        "train": lambda t, steps, n, gold, rng: said(gold),
        "before": lambda n, gold, rng: said(gold),
        "after": lambda n, gold, rng: said(gold),
    }


PROSE = "There is something in the upper right of the picture."
LONG = "I look at the picture from left to right and from top to bottom, twice. " * 4

BAD = {
    "collapse to empty": Case(
        IOU,
        placed,
        collapsing,
        constant(boxes(10, 10, 300, 300)),
        constant(NOTHING),
        "the model has stopped detecting: ",
        "worse",
        "the model has stopped detecting: 100% of the 60 answers are empty, but only 10%",
        steps=50,
    ),
    "constant answer": Case(
        IOU,
        placed,
        lambda t, steps, n, gold, rng: block(boxes(500, 50, 900, 250)),
        lambda n, gold, rng: block(near(gold, rng, 30)),
        constant(boxes(500, 50, 900, 250)),
        "the model gives one answer to everything: ",
        "worse",
        "the model gives one answer to everything: 100% of the 60 answers",
    ),
    "one class for all": Case(
        LABEL,
        named,
        lambda t, steps, n, gold, rng: right(gold, rng, 0.5) if t < 0.3 else block("cat"),
        kept(0.5),
        constant("cat"),
        "are 'cat', while the commonest gold has 25%",
        "worse",
        "are 'cat', while the commonest gold has 25%",
    ),
    "boxes that cannot be read": Case(
        IOU,
        placed,
        **read_wrongly(lambda *box: [*box, 1]),
        found="invalid boxes; ask for x1, y1, x2, y2",
        word="not proven",
        why="vlrft_detection_iou is 0 for the 60 answers",
    ),
    "wrong unit": Case(
        IOU,
        placed,
        **read_wrongly(lambda *box: [c / 1000 for c in box]),
        found="in shares of the sides: use SET:unit; vlrft_detection_iou is 0 for the ",
        word="not proven",
        why="use SET:unit; vlrft_detection_iou is 0 for the 60 answers",
    ),
    "y first": Case(
        IOU,
        placed,
        **read_wrongly(lambda x1, y1, x2, y2: [y1, x1, y2, x2]),
        found="use SET:yx1000 (key box_2d); vlrft_detection_iou is 0 for the ",
        word="not proven",
        why="use SET:yx1000 (key box_2d); vlrft_detection_iou is 0 for the 60 answers",
    ),
    "no format": Case(
        LABEL,
        named,
        lambda t, steps, n, gold, rng: PROSE if rng.random() < t else right(gold, rng, 0.5),
        kept(0.5),
        lambda n, gold, rng: block(gold) if n % 6 == 0 else PROSE,
        " answers can be read",
        "worse",
        "only 17% of the 60 answers can be read",
    ),
    "format never seen": Case(
        LABEL,
        named,
        lambda *_: PROSE,
        lambda *_: PROSE,
        lambda *_: PROSE,
        "answers hold no answer block. Warm-start it: `vlrft try SET`",
        "not proven",
        "this model has never written the format",
    ),
    "short answers": Case(
        COUNT,
        counted,
        lambda t, steps, n, gold, rng: (
            right(gold, rng, 0.6).replace("I look.", LONG) if t < 0.3 else right(gold, rng, 0.3)
        ),
        lambda n, gold, rng: right(gold, rng, 0.5).replace("I look.", LONG),
        kept(0.45),
        "the length of the answers fell from 3",
        "not proven",
        "the length of the answers fell from 3",
    ),
    "reward flat at 1": Case(
        LABEL,
        named,
        lambda t, steps, n, gold, rng: block(gold),
        kept(1),
        kept(1),
        "vlrft_classification was 1 from the beginning",
        "not proven",
        "accuracy 1.000 -> 1.000",
    ),
    "reward flat at 0": Case(
        COUNT,
        counted,
        lambda t, steps, n, gold, rng: right(gold, rng, 0),
        kept(0),
        kept(0),
        "vlrft_counting is 0 for the ",
        "not proven",
        "vlrft_counting is 0 for the 60 answers",
    ),
    "AP down while the reward is up": Case(
        IOU,
        placed,
        lambda t, steps, n, gold, rng: block(near(gold, rng, rng.choice((2, 9, 50)))),
        lambda n, gold, rng: halves(gold, n, 0.5, (0.9, 0.1)),
        lambda n, gold, rng: halves(gold, n, 0.65, (0.1, 0.9)),
        None,
        "not proven",
        "vlrft_detection_iou rose by +0.1",
    ),
    "zero variance": Case(
        LABEL,
        named,
        lambda t, steps, n, gold, rng: block(gold if n % 2 else f"a {rng.choice('xyz')}"),
        kept(0.5),
        kept(0.5),
        "answers have zero variance",
        "not proven",
        "the difference may be chance",
    ),
}
HEALTHY = {
    "boxes become better": Case(
        IOU,
        placed,
        lambda t, steps, n, gold, rng: block(near(gold, rng, rng.choice((2, 60 - 50 * t)))),
        lambda n, gold, rng: block(near(gold, rng, 20 if n % 3 else 2)),
        lambda n, gold, rng: block(near(gold, rng, 2)),
        None,
        "better",
        "AP 0.",
    ),
    "learns the format and shortens": Case(
        LABEL,
        named,
        lambda t, steps, n, gold, rng: (
            right(gold, rng, 0.3 + t / 2).replace("I look.", LONG if t < 0.3 else "Ah.")
            if rng.random() < 0.3 + t
            else PROSE
        ),
        kept(0.2),
        kept(0.9),
        None,
        "better",
        "accuracy 0.",
    ),
    "most golds are empty": Case(
        IOU,
        lambda n, rng: NOTHING if n % 3 else placed(0, rng),
        lambda t, steps, n, gold, rng: block(near(gold, rng, rng.choice((2, 9, 40)))),
        lambda n, gold, rng: block(near(gold, rng, 20)),
        lambda n, gold, rng: block(near(gold, rng, 2)),
        None,
        "better",
        "AP 0.",
    ),
}
CASES = BAD | HEALTHY


def rounds(case):
    """(step, prompts, golds, completions) of each step."""
    rng = random.Random(1)
    for step in range(case.steps):
        t = step / (case.steps - 1)
        numbers = [step * GROUPS + n // EACH for n in range(GROUPS * EACH)]
        of_group = {n: case.golds(n, random.Random(n)) for n in numbers}
        golds = [of_group[n] for n in numbers]
        texts = [case.train(t, case.steps, n, of_group[n], rng) for n in numbers]
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


def write_answers(case, said, path):
    rng = random.Random(2)
    with path.open("w") as file:
        for n in range(HELD_OUT):
            gold = case.golds(n, random.Random(n))
            row = {"id": str(n), "image_id": str(n), "solution": gold, "prompt": "Which?"}
            more = {"task": REWARDS[case.reward].task.name, "category": "thing", "width": 1000}
            more |= {"height": 1000, "frame": "norm1000", "completion": said(n, gold, rng)}
            file.write(json.dumps(row | more) + "\n")
    return path


def run(*words):
    result = CliRunner().invoke(app, list(map(str, words)))
    return result.exit_code, result.output


@pytest.fixture
def log(monkeypatch, caplog):
    monkeypatch.setattr(watching, "_said", {})
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


@pytest.mark.parametrize("name", CASES)
def test_log_score_compare_and_report_say_what_is_wrong_first(name, tmp_path, log):
    case = CASES[name]
    watched, said = watch(case.reward, REWARDS[case.reward]), {}
    for step, prompts, golds, texts in rounds(case):
        watched(texts, golds, prompt_id=prompts)
        said |= {one: said.get(one, step) for one in log.messages}
    ours = {one: step for one, step in said.items() if "box format" not in one}
    assert bool(ours) == (case.found is not None)
    assert not ours or min(step for one, step in ours.items() if case.found in one) <= 9
    folder = write_run(case, tmp_path / "run")
    code, told = run("score", folder / "completions.jsonl")
    assert (code == 1) == (case.found is not None) or "box format" in told
    assert told.startswith("problem: ") == (case.found is not None)
    assert case.found is None or case.found in told.splitlines()[0]
    for one in (told, *log.messages):  # why boxes are misplaced, once, and no other advice
        assert one.count("misplaced") <= 1 and ("misplaced" in one) + ("--show" in one) <= 1
    a, b = (
        write_answers(case, said, tmp_path / f"{side}.jsonl")
        for side, said in (("before", case.before), ("after", case.after))
    )
    _, told = run("compare", a, b, "--bootstrap", "300")
    assert told.startswith(f"{case.word}: ") and case.why in told.splitlines()[0], told
    code, told = run("report", folder, "--eval", a, "--eval", b, "--out", tmp_path / "r.html")
    assert code == 0, told
    page = unescape((tmp_path / "r.html").read_text())
    top = page.split("</h1>")[1].split('<div class="headline">')[0]
    assert f"<b>{case.word.capitalize()}:</b>" in top and case.why in top
    assert ("At the end of training" in top) == (case.found is not None)
    assert case.found is None or case.found in top


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"empty": (0.6, 0.05)}, "collapse"),
        ({"empty": (0.6, 0.2)}, None),  # leaves objects out, and detects
        ({"empty": (1.0, 0.6)}, "collapse"),
        ({"empty": (0.95, 0.7)}, None),  # of few objects
        ({"commonest": ("yes", 0.95, 0.6)}, "collapse"),
        ({"commonest": ("yes", 0.95, 0.7)}, None),  # most golds are yes, too
        ({"read": (0.1, 0.4)}, None),  # learns the format
        ({"read": (0.9, 0.4)}, "unreadable"),
        ({"zero_variance": 0.96, "score": (0.1, 0.2)}, "zero_variance"),
        ({"zero_variance": 0.96, "score": (0.1, 0.95)}, None),  # has learned
        ({"entropy": (1.0, 0.1), "score": (0.4, 0.4)}, "entropy"),
        ({"entropy": (1.0, 0.1), "score": (0.4, 0.6)}, None),
        ({"length": (300, 80), "score": (0.4, 0.4)}, "length"),
        ({"empty": (1.0, 0.1), "flat": 0, "zero_variance": 1.0}, "collapse"),  # the cause
    ],
)
def test_the_worst_is_found_and_what_is_common_is_not(facts, code):
    found = judge(Facts(IOU, "the 64 answers", **facts))
    assert (found and found.code) == code
    of_format = Facts("vlrft_format", "the 64 answers", flat=1, zero_variance=1.0)
    assert judge(of_format) is None  # a format that is kept


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({"frac_reward_zero_std": [0.5] * 8}, []),
        ({"frac_reward_zero_std": [0.5] * 4 + [1.0] * 4}, ["zero_variance"]),
        ({"entropy/mean": [1.0, 0.8, 0.4, 0.2, 0.1]}, ["entropy"]),
        ({"completions/mean_length": [300, 200, 80, 60, 50]}, ["length"]),
        ({"rewards/mine/mean": [0.2, 0.1, 0.1, 0.0, 0.0]}, ["flat_0"]),
        ({"rewards/vlrft_format/mean": [0.0] * 5}, ["no_format"]),
        ({"rewards/mine/mean": [0.0] * 4}, []),  # has only begun
    ],
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
