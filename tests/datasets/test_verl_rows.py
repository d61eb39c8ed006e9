"""Rows as verl's own script makes them, of three drawn problems with drawn pictures.

verl_geo3k.parquet is what examples/data_preprocess/geo3k.py of volcengine/verl at
b178a3cd56f58b2d502255daba591e92833930a7 wrote of a set with hiyouga/geometry3k's columns:
"<image>Find x." -> "3", "<image>Find the length of AB." -> "\\frac{17}{2}",
"<image>Find $m \\angle 1$." -> "6 \\sqrt { 2 }".
"""

from pathlib import Path

import pyarrow.parquet as pq
from support.stored_sets import shown, train_on

from swift_vlrft.datasets import read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.rewards import REWARDS

FILE = Path(__file__).with_name("verl_geo3k.parquet")


def test_rows_of_verls_own_script_are_read_whole_train_and_are_scored(tmp_path):
    stored, report = pq.read_table(FILE).to_pylist(), check_set(FILE)
    assert (report.rows, report.good) == (3, 3) and not report.problems
    rows = list(read_rows(FILE))
    for row, made in zip(rows, stored, strict=True):
        assert row.image["bytes"] == made["images"][0]["bytes"]
        assert row.problem == made["prompt"][0]["content"]
        assert row.problem.startswith(made["extra_info"]["question"])
        assert row.solution == made["reward_model"]["ground_truth"]
        kept = {name: made[name] for name in ("data_source", "ability", "extra_info")}
        assert row.columns.items() >= kept.items() and row.columns["system"] is None
    table, told = train_on(FILE, tmp_path, rewards=("vlrft_math",))
    assert told.rows == len(table) == 3 and shown(table[0]).size == (64, 48)
    answers = ["3", "\\frac{17}{2}", "6\\sqrt{2}"]
    texts = [f"<think>t</think><answer>\\boxed{{{answer}}}</answer>" for answer in answers]
    columns = {name: table[name][:] for name in ("solution", "task")}
    assert REWARDS["vlrft_math"](texts, **columns) == [1.0, 1.0, 1.0]
