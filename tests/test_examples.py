"""examples/ runs as it stands. Real verl and verifiers: end_to_end/test_other_trainers.py."""

import importlib
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.drawn_rows import FIVE, mixed_rows
from support.swift_run import REPOSITORY, run_command, run_python

import swift_vlrft
from swift_vlrft.rewards import REWARDS
from swift_vlrft.tiny.checkpoint import write_tiny

EXAMPLES = REPOSITORY / "examples"
RECIPE = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh"
IMPORT = """
import sys
from swift.utils import import_external_file
for plugin in sys.argv[1].split(","):
    import_external_file(plugin)
del sys.argv[1]
"""
PLUGIN = str(REPOSITORY / "plugins" / "vlrft.py")


def run_example(name, *arguments, **options):
    command = [sys.executable, EXAMPLES / name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)


@pytest.mark.slow
def test_the_space_answers_as_the_commands_do(monkeypatch):
    # Without gradio: only the page itself needs it.
    monkeypatch.syspath_prepend(EXAMPLES / "space")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.defpath]))
    app = importlib.import_module("app")
    monkeypatch.setattr(app, "SECONDS", 600)  # of a busy machine
    recipe = RECIPE.read_text()
    assert json.loads(app.plan(recipe, "4x24"))["verdict"] == "out of memory"
    assert app.plan(recipe, "--help").startswith("error: --gpus --help")
    checked = json.loads(app.check(recipe.replace("--rlhf_type grpo", "--rlhf_typ grpo")))
    assert any("rlhf_typ" in finding["text"] for finding in checked["findings"])
    scored = json.loads(app.score("vlrft_classification", "<answer>red</answer>", "red"))
    assert scored["rewards"]["vlrft_classification"]["mean"] == 1
    assert "4x80" in app.plan(recipe, " ") and "100,000" in app.check("#" * 100_001)
    assert "NUL" in app.plan(recipe, "4x\0") and "NUL" in app.score("a\0", "b", "c")
    monkeypatch.setattr(app, "SECONDS", 0.01)
    assert "0.01 seconds" in app.check(recipe)


# ---- a data set with a column of its own, and rewards ------------------------------------------


@pytest.fixture
def shelf(tmp_path):
    """Two records as my_dataset.py describes them: the image is 400 x 300 pixels."""
    (tmp_path / "shelf").mkdir()
    Image.new("RGB", (400, 300), (200, 30, 30)).save(tmp_path / "shelf" / "17.jpg")
    write_records(tmp_path / "shelf.jsonl", {"least": 0.7}, {"least": 0.9})
    return tmp_path / "shelf.jsonl"


def write_records(path, *changes):
    record = {"photo": "shelf/17.jpg", "ask": "the red mug", "rect": [120, 40, 310, 260]}
    with path.open("a") as out:
        out.writelines(json.dumps(record | changed) + "\n" for changed in changes)


@pytest.mark.slow
def test_a_data_set_and_rewards_of_your_own(shelf):
    """Half of the box is too little for both rows, nine tenths enough for the first alone; wrong
    rows are named and left out.
    """
    write_records(shelf, {"least": 0.7, "rect": [1, 2]}, {"least": "high"})
    then = """
from swift.dataset import load_dataset
from swift.rewards import orms
rows = list(load_dataset([sys.argv[2]])[0])
print(len(rows), rows[0]["task"], rows[0]["solution"])
columns = {name: [row[name] for row in rows] for name in ("solution", "task", "least")}
half, most = "<answer>[300, 133, 537, 867]</answer>", "<answer>[300, 133, 715, 867]</answer>"
print([orms["close_enough"]()([text] * 2, **columns) for text in (half, most, "no tags")])
print(orms["short_answer"]()(["<answer>4</answer>", "no answer"]))
"""
    files = f"{EXAMPLES / 'my_dataset.py'},{EXAMPLES / 'my_reward.py'},{PLUGIN}"
    flags = ("--dataset", str(shelf), "--reward_funcs", "close_enough", "vlrft_grounding_iou")
    done = run_python(IMPORT + then, files, *flags)
    assert done.stdout.splitlines()[-3:] == [
        "2 grounding <answer>[300, 133, 775, 867]</answer>",
        "[[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]",
        "[1.0, 0.0]",
    ], done.stderr
    assert all(f"{shelf}, row {row}: " in done.stderr + done.stdout for row in (2, 3))


# ---- planning and evaluation -------------------------------------------------------------------


def test_planning_says_what_the_command_says(tmp_path):
    done = run_example("plan.py", RECIPE, "4x24", "4xH100", "move_model_batches=16", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    small, cheapest, asked, large, _ = done.stdout.splitlines()
    planned = swift_vlrft.plan(RECIPE, "4x24")
    assert small.startswith(f"4 x 24 GB: {planned.plan.verdict}, peak ")
    assert cheapest.split(": ")[1] == asked.split("}: ")[1]  # the same change
    first = planned.changes()[0]
    assert f"with {first.label}: {first.plan.verdict}" in cheapest
    assert large.startswith("4 x H100: fits")


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("plan.py", (RECIPE, "4xZ9000"), "Z9000"),
        ("plan.py", (RECIPE, "4x24", "num_generations=7"), "--num_generations 7"),
        ("evaluate.py", ("model", "nowhere", "counting"), "nowhere"),
    ],
)
@pytest.mark.slow
def test_bad_input_is_one_line(tmp_path, name, arguments, named):
    done = run_example(name, *arguments, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(f"error: .*{named}.*\n", done.stderr)


@pytest.mark.end_to_end
def test_an_evaluation_from_python(shelf, tmp_path, monkeypatch):
    write_tiny("qwen2_5_vl", tmp_path / "model")
    row = {"image": "shelf/17.jpg", "problem": "How many?", "solution": "1", "task": "counting"}
    (tmp_path / "set.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.chdir(tmp_path)
    done = run_python((EXAMPLES / "evaluate.py").read_text(), "model", "set.jsonl", "counting")
    summary = json.loads((tmp_path / "runs/eval/model-set/summary.json").read_text())
    of = summary["metrics"]["accuracy"]
    assert f"accuracy{' ' * 17}{of['value']}  95 %: " in done.stdout, done.stderr[-2000:]


# ---- several tasks -----------------------------------------------------------------------------


@pytest.mark.end_to_end
@pytest.mark.nightly
def test_several_tasks_in_one_run(tmp_path):
    """Each task has the share that is asked for: 4, 8 and 4 rows of 16."""
    command = [sys.executable, str(EXAMPLES / "several_tasks.py"), str(tmp_path / "a folder")]
    done = run_command([*command, "--max_steps", "4"])
    assert done.returncode == 0, done.stdout[-3000:]
    steps = [json.loads(line) for line in (tmp_path / "a folder/run/logging.jsonl").open()]
    steps = [step for step in steps if "reward" in step]
    assert len(steps) == 4 and done.stdout.count("{'rewards/") == 4
    rows = [json.loads(line) for line in (tmp_path / "a folder/run/completions.jsonl").open()]
    last = {row["step"][0]: row["task"] for row in rows}  # the last step is written once more
    tasks = Counter(task for step in last.values() for task in step)
    assert tasks["detection"] == 2 * tasks["counting"] == 2 * tasks["pointing"]
    again = run_example("several_tasks.py", tmp_path / "a folder")
    assert again.returncode == 1 and re.fullmatch("error: .* is there already; .*\n", again.stderr)


# ---- other trainers ----------------------------------------------------------------------------


@pytest.mark.nightly
def test_rewards_in_trls_own_trainer(tmp_path):
    """Two real steps; what TRL goes on with are our scores, bit by bit in its float32."""
    write_tiny("qwen2_5_vl", tmp_path / "model")
    answers = [f"<think>t</think><answer>{n}</answer>" for n in (1, 2, 3)]
    malformed = ["<answer>4", "<answer>four five</answer>", "4"]
    script = REPOSITORY / "tests" / "support" / "in_trl.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "model", tmp_path / "out"],
        input=json.dumps([[*answers, "<answer>4</answer>"], malformed]),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = json.loads(done.stdout.splitlines()[-1])
    for step in (first, second):
        texts = [messages[-1]["content"] for messages in step["completions"]]
        rewards = [REWARDS[name] for name in ("vlrft_counting", "vlrft_format")]
        expected = [reward(texts, step["solution"], task=step["task"]) for reward in rewards]
        assert step["rewards"] == np.array(expected, np.float32).T.tolist()
    assert sum(counted for counted, _ in first["rewards"]) == 1
    assert [form for _, form in first["rewards"]] == [1, 1, 1, 0]
    assert second["rewards"][:3] == [[0, 0]] * 3


def test_rewards_as_verls_compute_score(monkeypatch):
    """Equal to REWARDS, for the gold and for a wrong answer of each task."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    verl_reward = importlib.import_module("verl_reward")
    # What a set says of its rows besides may be named as anything.
    further = {"solution": "x", "completions": "y", "index": 3, "num_turns": None}
    for row in [*mixed_rows(random.Random(0), 24), *mixed_rows(random.Random(0), 12, FIVE)]:
        reward = verl_reward.BY_TASK[row.columns["task"]]
        columns = {name: [value] for name, value in row.columns.items()}
        assert reward.task.name == row.columns["task"]
        for text in (row.solution[8:-9], row.solution, "<answer>none of it</answer>", "no tags"):
            scored = verl_reward.compute_score(
                row.columns["task"], text, row.solution, further | row.columns
            )
            assert [scored] == reward([text], [row.solution], **columns) and 0 <= scored <= 1
    assert verl_reward.compute_score("x", "<answer>b</answer>", "a", {"task": "ocr"}) == 0.0
    with pytest.raises(ValueError, match="refcoco"):
        verl_reward.compute_score("refcoco", "<answer>4</answer>", "4")


def test_rewards_as_verifiers_calls_them(monkeypatch):
    """A name that is no reward is an error at once: in a rollout verifiers would count it 0."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    verifiers_rubric = importlib.import_module("verifiers_rubric")
    score = verifiers_rubric.of_rollout("vlrft_ocr")
    assert score([{"role": "assistant", "content": "<answer>b</answer>"}], "a", {}) == 0.0
    assert score("<answer>b</answer>", "a", {"aliases": ["b"], "example": 3}) == 1.0
    assert score([], "a", None) == score([{"role": "assistant", "content": None}], "a", None) == 0
    assert score("<answer>a</answer>", "a", {"task": "counting"}) == 0.0  # a row of another task
    assert callable(verifiers_rubric.vlrft_ocr)
    with pytest.raises(ValueError, match="vlrft_orc"):
        verifiers_rubric.rubric("vlrft_orc")
    with pytest.raises(AttributeError, match="vlrft_orc"):
        _ = verifiers_rubric.vlrft_orc
