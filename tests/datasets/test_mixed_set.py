"""Sets of points, texts, numbers, lists, orders and phrases without a target: checked, converted,
in other box formats, trained on, shown.
"""

import json
import random
from pathlib import Path

import pytest
from support.drawn_rows import MIXED, mixed_rows
from support.stored_sets import picture
from support.written_sets import check, data, write_rows

from swift_vlrft.datasets import read_rows
from swift_vlrft.rewards import REWARDS
from tests.support.parquet import write_parquet

NAMES = [name for name, reward in REWARDS.items() if reward.task and reward.task.name in MIXED]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set") / "mixed"
    write_parquet(mixed_rows(random.Random(1), 60), folder)
    return folder


def test_a_set_of_all_tasks_is_fit_as_it_is_and_converted(mixed, tmp_path):
    assert data("convert", mixed, tmp_path / "out").exit_code == 0
    for folder in (mixed, tmp_path / "out"):
        code, report = check(folder)
        assert code == 0 and report["good"] == 60 and report["tasks"] == dict.fromkeys(MIXED, 10)
        assert report["rewards"].keys() == set(NAMES)
    rows = list(read_rows(tmp_path / "out"))
    assert {row.columns["tolerance"] for row in rows} == {None, "0", "0.05"}
    empty = [row.columns["task"] for row in rows if "No Objects" in row.solution]
    assert set(empty) == {"grounding", "pointing"}  # both have rows without a target


def test_gold_that_cannot_be_read_is_named_by_file_and_row(tmp_path):
    """By mixed_gold.jsonl, where ``said`` is what the problem names, null where there is none."""
    lines = Path(__file__).with_name("mixed_gold.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    (tmp_path / "a.png").write_bytes(picture())
    good = {"image": "a.png", "problem": "?", "task": "list", "solution": "a, b"}
    source = write_rows(tmp_path / "rows.jsonl", good, *(good | case["row"] for case in cases))
    code, report = check(source, "--show", len(cases))
    problems = {
        int(problem["place"].rsplit("row ", 1)[1]): problem["problem"]
        for problem in report["problems"]
    }
    wrong = [
        f"line {number}: {problems.get(number)}"
        for number, case in enumerate(cases, 1)
        if (case["said"] is None) != (number not in problems)
        or (case["said"] or "") not in problems.get(number, "")
    ]
    assert wrong == [] and code == 1
    first = min(problems)
    done = data("convert", source, tmp_path / "out")
    assert done.exit_code == 2 and f"rows.jsonl, row {first}" in done.output.replace("\n", "")
    done = data("convert", source, tmp_path / "out", "--keep-going", "--json")
    assert len(json.loads(done.stdout)["left_out"]) == len(problems)
