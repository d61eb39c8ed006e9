"""Evaluation of points, texts, numbers, lists, orders and phrases without a target."""

# ruff: noqa: E501 - rows of a table stay on one line

import json
import random

import pytest
from support.drawn_rows import MIXED, mixed_rows
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import read_rows
from swift_vlrft.demo.data import write_parquet
from swift_vlrft.evaluation.predictions import EVALUATED
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.rewards import TASK_NAMES


def answer(text):
    return f"<think>t</think><answer>{text}</answer>"


def evaluated(tmp_path, task, pairs, **columns):
    rows = [
        {"task": task, "completion": answer(text) if text is not None else "?", "solution": gold}
        | {name: values[n] for name, values in columns.items()}
        for n, (text, gold) in enumerate(pairs)
    ]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["eval", "--predictions", str(path), "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["headline"] == EVALUATED[task][1] and summary["headline"] in summary["metrics"]
    return {name: metric["value"] for name, metric in summary["metrics"].items()}


def test_grounding_with_rows_without_a_target(tmp_path):
    gold = "[100, 100, 300, 300]"
    right = [("No Objects", "No Objects"), ("[]", "none"), (gold, gold), ("[1, 2, 3, 4]", gold)]
    wrong = [
        ("[1, 2, 3, 4]", "No Objects"),
        ("?", "No Objects"),
        ("No Objects", gold),
        (None, gold),
    ]
    values = evaluated(tmp_path, "grounding", right + wrong)
    # gRefCOCO (Liu et al. 2023): N-acc = TP / (TP + FN), T-acc = TN / (TN + FP) of "no target".
    assert values["n_acc"] == pytest.approx(2 / 4)
    assert values["t_acc"] == pytest.approx(2 / 4)
    assert values["acc50"] == values["acc75"] == values["mean_iou"] == pytest.approx(3 / 8)
    assert values["vlrft_grounding_giou"] <= 1.0 and -1.0 <= values["mean_giou"] <= 1.0
    # An answer where nothing is to be found adds to the union.
    assert values["cumulative_iou"] == pytest.approx(40_000 / (4 * 40_000 + 4 + 4))
    only_targets = evaluated(tmp_path, "grounding", right[2:])
    assert not only_targets.keys() & {"n_acc", "t_acc"}
    only_none = evaluated(tmp_path, "grounding", right[:2])
    assert (
        only_none["n_acc"] == 1.0
        and only_none.get("t_acc") is None
        and only_none["mean_giou"] is None
    )


def test_pointing(tmp_path):
    two = "[[0, 0, 100, 100], [200, 0, 300, 100]]"
    said = [("[[50, 50], [250, 50]]", two), ("[50, 50]", two), ("[50, 50], [60, 60], [1]", two)]
    said += [("[[9]]", "[0, 0, 100, 100]"), (None, two)]
    values = evaluated(tmp_path, "pointing", said)
    assert values["point_accuracy"] == pytest.approx(1 / 5)
    assert values["points_in_boxes"] == pytest.approx((2 + 1 + 1) / (2 + 1 + 2 + 1))
    assert values["boxes_pointed_at"] == pytest.approx(4 / 9)
    assert values["vlrft_pointing"] == pytest.approx((1 + 2 / 3 + 1 / 2) / 5)
    assert values["invalid_point_rate"] == pytest.approx(1 / 6)
    assert values["parse_rate"] == pytest.approx(4 / 5)
    assert "n_acc" not in values
    with_none = evaluated(tmp_path, "pointing", [*said, ("none", "[]"), ("[1, 2]", "No Objects")])
    assert with_none["n_acc"] == 0.5 and with_none["t_acc"] == pytest.approx(4 / 5)


def distance(a, b):
    """Wagner and Fischer 1974."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def test_text_has_the_textbooks_error_rates(tmp_path):
    pairs = [
        ("the quick  brown fox", "the quick brown fox"), ("THE QUICK", "the quick"), ("teh quick fox", "the quick"),
        ("a", "abcd"), ("abc", "abcdef"), ("", "gone"), (None, "unread"), ("x y z w v", "a"), ("abcd", "ab"),
    ]  # fmt: skip
    values = evaluated(tmp_path, "ocr", pairs)
    texts = [(" ".join((text or "").split()), gold) for text, gold in pairs]
    edits = sum(distance(text, gold) for text, gold in texts)
    assert values["cer"] == pytest.approx(edits / sum(len(gold) for _, gold in texts))
    edits = sum(distance(text.split(), gold.split()) for text, gold in texts)
    assert values["wer"] == pytest.approx(edits / sum(len(gold.split()) for _, gold in texts))
    assert values["exact_match"] == pytest.approx(1 / 9)
    # ANLS (Biten et al. 2019): case folded, 1 - NL, and 0 from NL = 0.5 on.
    far = [distance(text.lower(), gold.lower()) / max(len(text), len(gold)) for text, gold in texts]
    assert values["anls"] == pytest.approx(sum(1 - nl if nl < 0.5 else 0 for nl in far) / 9)
    assert far.count(0.5) == 2  # the threshold itself earns nothing


def test_of_accepted_texts_the_nearest_is_measured(tmp_path):
    pairs = [("itc", "ITC Limited"), ("1/8/94", "January 8, 1993"), ("Paul", "Paul"), ("x", "abcd")]
    accepted = [["ITC", "itc"], ["1/8/93"], ["a"], None]
    values = evaluated(tmp_path, "ocr", pairs, aliases=accepted)
    near = [("itc", "itc"), ("1/8/94", "1/8/93"), ("Paul", "Paul"), ("x", "abcd")]
    edits = sum(distance(text, gold) for text, gold in near)
    assert values["cer"] == pytest.approx(edits / sum(len(gold) for _, gold in near))
    assert values["wer"] == pytest.approx(2 / 4)
    assert values["exact_match"] == values["vlrft_ocr_exact"] == 0.5
    assert values["vlrft_ocr"] == pytest.approx((1 + 5 / 6 + 1 + 0) / 4) == values["anls"]


def test_anls_of_random_texts_and_aliases(tmp_path):
    """Biten et al. 2019, from the formula: the mean over questions of the best of their answers."""
    draw = random.Random(5)

    def word():
        return "".join(draw.choices("abcA ", k=draw.randint(1, 8))).strip() or "a"

    pairs, accepted, expected = [], [], []
    for _ in range(200):
        text, gold, aliases = word(), word(), [word() for _ in range(draw.randint(0, 3))]
        pairs.append((text, gold))
        accepted.append(aliases)
        known = [" ".join(t.split()).lower() for t in (text, gold, *aliases)]
        near = min(distance(known[0], g) / max(len(known[0]), len(g)) for g in known[1:])
        expected.append(1 - near if near < 0.5 else 0)
    values = evaluated(tmp_path, "ocr", pairs, aliases=accepted)
    assert values["anls"] == pytest.approx(sum(expected) / 200)


@pytest.mark.parametrize("task", ["grounding", "pointing"])
def test_n_acc_and_t_acc_of_random_answers(task, tmp_path):
    """Liu et al. 2023: shares of the right verdicts "there is none" and "there is one"."""
    draw, box = random.Random(6), "[10, 10, 50, 50]"
    said = [
        "No Objects",
        "[]",
        "none",
        box if task == "grounding" else "[20, 20]",
        "[9, 9, 9]",
        "?",
    ]
    pairs = [(draw.choice(said), draw.choice(["No Objects", box])) for _ in range(200)]
    values = evaluated(tmp_path, task, pairs)
    none = [text in said[:3] for text, gold in pairs if gold == "No Objects"]
    some = [text in said[3:5] for text, gold in pairs if gold == box]
    assert values["n_acc"] == pytest.approx(sum(none) / len(none))
    assert values["t_acc"] == pytest.approx(sum(some) / len(some))


def test_numbers_lists_and_orders(tmp_path):
    pairs = [("105", "100"), ("105", "100"), ("99.9", "100"), ("1 or 2", "1"), (None, "1")]
    values = evaluated(tmp_path, "number", pairs, tolerance=[0.05, None, "0.01", None, None])
    assert values["accuracy"] == pytest.approx(2 / 5) and values["parse_rate"] == pytest.approx(
        3 / 5
    )
    values = evaluated(
        tmp_path, "list", [("a, b", "b, a"), ("a", "a, b"), ("none", "a"), ("x", "[]")]
    )
    assert values["f1"] == pytest.approx((1 + 2 / 3) / 4) and values["exact_match"] == 0.25
    assert values["empty_prediction_rate"] == 0.25
    orders = [
        ("a, b, c", "a, b, c"),
        ("b, a, c", "a, b, c"),
        ("c, b, a", "a, b, c"),
        ("a, b", "a, b, c"),
    ]
    values = evaluated(tmp_path, "ordering", orders)
    assert values["mean_tau"] == pytest.approx((1 + 1 / 3 - 1 + 0) / 4)
    assert values["vlrft_ordering"] == pytest.approx((1 + 1 / 3) / 4)
    assert values["exact_match"] == 0.25 and values["right_items_rate"] == 0.75


@pytest.mark.parametrize("task", MIXED)
def test_right_answers_to_a_set_are_joined_scored_and_shown(task, tmp_path):
    """As `swift infer` leaves them, with the gold of the set, and in the report."""
    folder, out = tmp_path / "set", tmp_path / "out"
    write_parquet(
        [r for r in mixed_rows(random.Random(2), 48) if r.columns["task"] == task], folder
    )
    lines = []
    for n, row in enumerate(read_rows(folder)):
        gold = TASK_NAMES[task].read_gold(row.solution)
        written = TASK_NAMES[task].answer_of
        text = written(gold) if written else gold_text(row.solution)
        if task == "number" and row.columns["tolerance"] == "0.05":
            text = str(float(text) * 1.04)  # right by the set's column alone
        lines.append(json.dumps({"id": str(n), "completion": answer(text)}) + "\n")
    (tmp_path / "p.jsonl").write_text("".join(lines))
    flags = ["--gold", folder, "--join", "order", "--task", task, "--out", out, "--json"]
    command = ["eval", "--predictions", tmp_path / "p.jsonl", *flags]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["rows"] == 8
    assert summary["metrics"][summary["headline"]]["value"] == 1.0
    assert summary["metrics"][EVALUATED[task][0]]["value"] == 1.0
    for name in ("n_acc", "t_acc"):
        assert summary["metrics"].get(name, {"value": 1.0})["value"] == 1.0
    assert ("n_acc" in summary["metrics"]) == (task in ("grounding", "pointing"))
