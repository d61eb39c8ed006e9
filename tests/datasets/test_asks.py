"""What a reward reads, a prompt must ask for: it is said before a run that cannot pay."""

import json
import re
from pathlib import Path

import pytest
from support.stored_sets import command, picture
from support.written_sets import check, rows_in, write_rows

from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.rules.data import data_sets
from swift_vlrft.recipe.run import resolve
from swift_vlrft.rewards import contract

TAGS = "in <answer> </answer>"
BOXES = "[[1, 2, 300, 400]]", "[[1, 2, 300, 500]]"
LABELS = "rose", "lily"
ASKED, CASES = (
    [*map(json.loads, Path(__file__).with_name(name).read_text().splitlines())]
    for name in ("asked.jsonl", "asks_of_rewards.jsonl")
)


def flowers(folder, asked, golds=LABELS, **more):
    """Rows of which each asks in its words."""
    (folder / "0.png").write_bytes(picture())
    rows = [
        {"image": "0.png", "problem": f"What {n}? {words}", "solution": golds[n % 2]} | more
        for n, words in enumerate(asked)
    ]
    return write_rows(folder / "train.jsonl", *rows)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_rewards_of_what_no_prompt_asks_for_are_named(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flowers(tmp_path, case["asked"], case["golds"])
    (tmp_path / "asks.txt").write_text(TAGS)
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained" / "args.json").write_text('{"dataset": ["d"]}')
    (recipe,) = read_text(
        "swift rlhf --rlhf_type grpo --model Qwen/Qwen2-VL-2B-Instruct --dataset train.jsonl "
        f"--reward_funcs {case['rewards']} {case['flags']}"
    )
    found = [f for f in check_recipe(resolve(recipe), [data_sets]) if f.rule == "unasked"]
    assert [finding.level for finding in found] == case["levels"]
    assert len({finding.text.partition("--system ")[2] for finding in found}) < 2


def test_data_check_says_it_and_the_way_that_it_names_ends_it(tmp_path):
    path = flowers(tmp_path, [""] * 4, BOXES, task="detection")
    _, report = check(path)
    note, of_boxes = report["notes"]
    assert "4 of 4 prompts never ask for <answer>" in note and "for boxes" in of_boxes
    assert "vlrft_detection_iou" in report["rewards"]
    assert "vlrft_detection_confidence" not in report["rewards"]
    line = note.rpartition("--ask ")[2].strip("'")
    done, said = command("data", "convert", path, tmp_path / "asks", "--ask", line)
    assert done == 0, said
    assert all(row["problem"].endswith(line) for row in rows_in(tmp_path / "asks"))
    assert check(tmp_path / "asks")[1]["notes"] == []
    assert check(f"{tmp_path / 'asks'}:unit")[1]["problems"] == []
    some = flowers(tmp_path, ["", "Confidence"] * 2, BOXES, task="detection")
    assert check(some)[1]["rewards"]["vlrft_detection_confidence"] == [2, 4]


@pytest.mark.parametrize("row", ASKED, ids=lambda row: row["text"][:40])
def test_published_prompts_ask_and_a_word_alone_does_not(row):
    found = re.search(getattr(contract, row["asked"]).pattern, row["text"])
    assert (found is not None) == row["found"]


def test_a_row_s_own_system_turn_counts_and_hides_the_command_s(tmp_path):
    path = flowers(tmp_path, ["", ""], system=TAGS)
    assert check(path)[1]["notes"] == []
    path.write_text(json.dumps(json.loads(path.read_text().splitlines()[0]) | {"system": "Hi"}))
    (recipe,) = read_text(
        f"swift rlhf --rlhf_type grpo --model m --dataset {path} --reward_funcs "
        f"vlrft_classification --system '{TAGS}'"
    )
    (found,) = (f for f in check_recipe(resolve(recipe), [data_sets]) if f.rule == "unasked")
    assert found.level == "note" and "1 of 1" in found.text
