"""The metrics of every task, by hand and from the textbooks."""

import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
from rewards.test_oracles import distance
from scored import answer, assert_metrics, eval_json, write_lines
from support.drawn_rows import MIXED, mixed_rows

from swift_vlrft.datasets import read_rows
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.rewards import PAYING, TASK_NAMES
from tests.support.parquet import write_parquet

BY_HAND = list(map(json.loads, Path(__file__).with_name("by_hand.jsonl").open()))
"""``answers``: answer and gold, null where there is no block; ``columns``: of those rows;
``absent``: metrics that are not of such rows.
"""


def evaluated(tmp_path, task, pairs, shared=(), **columns):
    """The summary of answers and golds."""
    rows = [
        {"task": task, "completion": "?" if text is None else answer(text), "solution": gold}
        | dict(shared)
        | {name: values[n] for name, values in columns.items()}
        for n, (text, gold) in enumerate(pairs)
    ]
    summary = eval_json(write_lines(tmp_path / "p.jsonl", rows))
    assert summary["headline"] == TASK_NAMES[task].headline
    assert summary["headline"] in summary["metrics"]
    return summary


@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: f"{case['task']}: {case['why']}")
def test_metrics_by_hand(case, tmp_path):
    shared = {key: case[key] for key in ("frame", "width", "height") if key in case}
    columns = case.get("columns", {})
    summary = evaluated(tmp_path, case["task"], case["answers"], shared, **columns)
    expected = {name: value and float(Fraction(value)) for name, value in case["expected"].items()}
    assert_metrics(summary, **expected)
    assert not summary["metrics"].keys() & set(case.get("absent", ()))


def test_text_has_the_textbooks_error_rates(tmp_path):
    """ANLS (Biten et al. 2019): case folded, the mean of 1 - NL, and 0 from NL = 0.5 on."""
    draw = random.Random(5)

    def word():
        return "".join(draw.choices("abcA ", k=draw.randint(1, 8))).strip() or "a"

    pairs = [(word(), word()) for _ in range(200)]
    aliases = [[word() for _ in range(draw.randint(0, 3))] for _ in pairs]
    pairs += [("the quick  brown fox", "the quick brown fox"), ("", "gone"), (None, "unread")]
    expected = []
    for (text, gold), more in zip(pairs, [*aliases, *[None] * 3], strict=True):
        said = " ".join((text or "").split())
        known = [" ".join(name.split()) for name in (gold, *(more or ()))]
        far = min(distance(said.lower(), x.lower()) / max(len(said), len(x)) for x in known)
        expected.append(1 - far if far < 0.5 else 0)
    summary = evaluated(tmp_path, "ocr", pairs, aliases=[*aliases, *[None] * 3])
    assert_metrics(summary, anls=sum(expected) / len(pairs))


@pytest.mark.parametrize("task", MIXED)
def test_right_answers_to_a_set_are_joined_and_scored(task, tmp_path):
    """By their ids, with the gold of the set."""
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
    summary = eval_json(file, "--gold", tmp_path / "set", "--join", "id", "--task", task)
    assert summary["rows"] == 8
    targets = ("n_acc", "t_acc") if task in ("grounding", "pointing") else ()
    names = (summary["headline"], PAYING[task][0], *targets)
    assert_metrics(summary, **dict.fromkeys(names, 1.0))
    assert bool(targets) == ("n_acc" in summary["metrics"])
