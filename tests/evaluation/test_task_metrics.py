"""Evaluation of points, texts, numbers, lists, orders and phrases without a target."""

import random

import pytest
from scored import answer, assert_metrics, eval_json, write_lines
from support.drawn_rows import MIXED, mixed_rows

from swift_vlrft.datasets import read_rows
from swift_vlrft.demo.data import write_parquet
from swift_vlrft.evaluation.predictions import EVALUATED
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.rewards import TASK_NAMES


def evaluated(tmp_path, task, pairs, **columns):
    """The summary of answers and golds; None: without a block."""
    rows = [
        {"task": task, "completion": "?" if text is None else answer(text), "solution": gold}
        | {name: values[n] for name, values in columns.items()}
        for n, (text, gold) in enumerate(pairs)
    ]
    summary = eval_json(write_lines(tmp_path / "p.jsonl", rows))
    assert summary["headline"] == EVALUATED[task][1] and summary["headline"] in summary["metrics"]
    return summary


def test_grounding_with_rows_without_a_target(tmp_path):
    box = "[100, 100, 300, 300]"
    right = [("No Objects", "No Objects"), ("[]", "none"), (box, box), ("[1, 2, 3, 4]", box)]
    wrong = [("[1, 2, 3, 4]", "No Objects"), ("?", "No Objects"), ("No Objects", box), (None, box)]
    summary = evaluated(tmp_path, "grounding", right + wrong)
    # gRefCOCO (Liu et al. 2023): N-acc = TP / (TP + FN), T-acc = TN / (TN + FP) of "no target".
    assert_metrics(summary, n_acc=2 / 4, t_acc=2 / 4, acc50=3 / 8, acc75=3 / 8, mean_iou=3 / 8)
    # An answer where nothing is to be found adds to the union.
    assert_metrics(summary, cumulative_iou=40_000 / (4 * 40_000 + 4 + 4))
    only_targets = evaluated(tmp_path, "grounding", right[2:])
    assert not only_targets["metrics"].keys() & {"n_acc", "t_acc"}
    assert_metrics(evaluated(tmp_path, "grounding", right[:2]), n_acc=1.0, mean_giou=None)


def test_pointing(tmp_path):
    two = "[[0, 0, 100, 100], [200, 0, 300, 100]]"
    said = [("[[50, 50], [250, 50]]", two), ("[50, 50]", two), ("[50, 50], [60, 60], [1]", two)]
    said += [("[[9]]", "[0, 0, 100, 100]"), (None, two)]
    summary = evaluated(tmp_path, "pointing", said)
    assert_metrics(
        summary,
        point_accuracy=1 / 5,
        points_in_boxes=(2 + 1 + 1) / (2 + 1 + 2 + 1),
        boxes_pointed_at=4 / 9,
        vlrft_pointing=(1 + 2 / 3 + 1 / 2) / 5,
        invalid_point_rate=1 / 6,
        parse_rate=4 / 5,
    )
    assert "n_acc" not in summary["metrics"]
    with_none = [*said, ("none", "[]"), ("[1, 2]", "No Objects")]
    assert_metrics(evaluated(tmp_path, "pointing", with_none), n_acc=0.5, t_acc=4 / 5)


@pytest.mark.parametrize(
    ("task", "place"), [("grounding", "[9, 9, 50, 50]"), ("pointing", "[9, 9]")]
)
def test_n_acc_and_t_acc_of_random_answers(task, place, tmp_path):
    """Liu et al. 2023: shares of the right verdicts "there is none" and "there is one"."""
    draw, box = random.Random(6), "[10, 10, 50, 50]"
    none, some = ["No Objects", "[]", "none"], [place, "[9, 9, 9]"]
    golds = ["No Objects", box]
    pairs = [(draw.choice([*none, *some, "?"]), draw.choice(golds)) for _ in range(200)]
    right = {
        gold: [text in texts for text, of in pairs if of == gold]
        for gold, texts in zip(golds, (none, some), strict=True)
    }
    n_acc, t_acc = (sum(verdicts) / len(verdicts) for verdicts in right.values())
    assert_metrics(evaluated(tmp_path, task, pairs), n_acc=n_acc, t_acc=t_acc)


def distance(a, b):
    """Wagner and Fischer 1974."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


TEXTS = [
    *(("the quick  brown fox", "the quick brown fox"), ("THE QUICK", "the quick")),
    *(("teh quick fox", "the quick"), ("a", "abcd"), ("abc", "abcdef"), ("", "gone")),
    *((None, "unread"), ("x y z w v", "a"), ("abcd", "ab")),
]


def random_texts():
    draw = random.Random(5)

    def word():
        return "".join(draw.choices("abcA ", k=draw.randint(1, 8))).strip() or "a"

    pairs = [(word(), word()) for _ in range(200)]
    return pairs, [[word() for _ in range(draw.randint(0, 3))] for _ in pairs]


@pytest.mark.parametrize(
    ("pairs", "aliases"), [(TEXTS, [None] * len(TEXTS)), random_texts()], ids=["by hand", "random"]
)
def test_text_has_the_textbooks_error_rates(tmp_path, pairs, aliases):
    """ANLS (Biten et al. 2019): case folded, the mean of 1 - NL, and 0 from NL = 0.5 on."""
    expected = []
    for (text, gold), more in zip(pairs, aliases, strict=True):
        said = " ".join((text or "").split())
        known = [" ".join(name.split()) for name in (gold, *(more or ()))]
        longest = [max(len(said), len(name)) for name in known]
        far = min(
            distance(said.lower(), name.lower()) / n for name, n in zip(known, longest, strict=True)
        )
        expected.append(1 - far if far < 0.5 else 0)
    summary = evaluated(tmp_path, "ocr", pairs, aliases=aliases)
    assert_metrics(summary, anls=sum(expected) / len(pairs))
    if pairs is TEXTS:
        texts = [(" ".join((text or "").split()), gold) for text, gold in pairs]
        edits = sum(distance(text, gold) for text, gold in texts)
        words = sum(distance(text.split(), gold.split()) for text, gold in texts)
        cer = edits / sum(len(gold) for _, gold in texts)
        wer = words / sum(len(gold.split()) for _, gold in texts)
        assert_metrics(summary, cer=cer, wer=wer, exact_match=1 / 9)


def test_of_accepted_texts_the_nearest_is_measured(tmp_path):
    pairs = [("itc", "ITC Limited"), ("1/8/94", "January 8, 1993"), ("Paul", "Paul"), ("x", "abcd")]
    accepted = [["ITC", "itc"], ["1/8/93"], ["a"], None]
    summary = evaluated(tmp_path, "ocr", pairs, aliases=accepted)
    cer = (0 + 1 + 0 + 4) / sum(map(len, ("itc", "1/8/93", "Paul", "abcd")))
    near = (1 + 5 / 6 + 1 + 0) / 4
    assert_metrics(summary, cer=cer, wer=2 / 4, anls=near, vlrft_ocr=near)
    assert_metrics(summary, exact_match=0.5, vlrft_ocr_exact=0.5)


@pytest.mark.parametrize(
    ("task", "pairs", "columns", "expected"),
    [
        (
            "number",
            [("105", "100"), ("105", "100"), ("99.9", "100"), ("1 or 2", "1"), (None, "1")],
            {"tolerance": [0.05, None, "0.01", None, None]},
            {"accuracy": 2 / 5, "parse_rate": 3 / 5},
        ),
        (
            "list",
            [("a, b", "b, a"), ("a", "a, b"), ("none", "a"), ("x", "[]")],
            {},
            {"f1": (1 + 2 / 3) / 4, "exact_match": 0.25, "empty_prediction_rate": 0.25},
        ),
        (
            "ordering",
            [(said, "a, b, c") for said in ("a, b, c", "b, a, c", "c, b, a", "a, b")],
            {},
            {"mean_tau": (1 + 1 / 3 - 1 + 0) / 4, "vlrft_ordering": (1 + 1 / 3) / 4}
            | {"exact_match": 0.25, "right_items_rate": 0.75},
        ),
    ],
)
def test_numbers_lists_and_orders(tmp_path, task, pairs, columns, expected):
    assert_metrics(evaluated(tmp_path, task, pairs, **columns), **expected)


@pytest.mark.parametrize("task", MIXED)
def test_right_answers_to_a_set_are_joined_and_scored(task, tmp_path):
    """As `swift infer` leaves them, with the gold of the set."""
    drawn = [row for row in mixed_rows(random.Random(2), 48) if row.columns["task"] == task]
    write_parquet(drawn, tmp_path / "set")
    lines = []
    for n, row in enumerate(read_rows(tmp_path / "set")):
        written = TASK_NAMES[task].answer_of
        text = gold_text(row.solution)
        text = written(TASK_NAMES[task].read_gold(row.solution)) if written else text
        if task == "number" and row.columns["tolerance"] == "0.05":
            text = str(float(text) * 1.04)  # right by the set's column alone
        lines.append({"id": str(n), "completion": answer(text)})
    file = write_lines(tmp_path / "p.jsonl", lines)
    summary = eval_json(file, "--gold", tmp_path / "set", "--join", "order", "--task", task)
    assert summary["rows"] == 8
    targets = ("n_acc", "t_acc") if task in ("grounding", "pointing") else ()
    names = (summary["headline"], EVALUATED[task][0], *targets)
    assert_metrics(summary, **dict.fromkeys(names, 1.0))
    assert bool(targets) == ("n_acc" in summary["metrics"])
