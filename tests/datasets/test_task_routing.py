"""A set's rows are scored by the rewards that the command names: over the rewards, the column task
and the ways in which sets are stored.
"""

import json
import logging
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stored_sets import picture
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.box_format import ImageResize
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import rows_of as read
from swift_vlrft.datasets.report import Report, nothing_scored
from swift_vlrft.datasets.training import LoadOptions, streamed_rows, training_set
from swift_vlrft.diagnostics import watch as watching
from swift_vlrft.diagnostics.watch import watch
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.rewards import REWARDS, TASK_NAMES

ONE, TWO = "[10, 20, 300, 400]", "[[10, 20, 300, 400], [500, 5, 900, 700]]"
GOLD = {
    "detection": [ONE, TWO, "<answer>No Objects</answer>"],
    "grounding": [ONE, "<answer>(10,20),(30,40)</answer>", "<answer>No Objects</answer>"],
    "classification": ["rose", "<answer>African violet</answer>", "nan", "None"],
    "counting": ["4", "3", "<answer>7</answer>"],
    "choice": ["A", "B"],
    "yes_no": ["yes", "no"],
    "pointing": [ONE, TWO, "No Objects"],
    "ocr": ["Total: 4", "<answer>(12, 30)</answer>", "a dog"],
    "number": ["4.5", "<answer>-1e-3</answer>", "12 %"],
    "list": ["red", '["a", "b"]', "<answer>none</answer>", "[1, 2, 3, 4]"],
    "ordering": ["b, a", '["a", "b"]', "x"],
}
BY_TASK = [(name, task.name) for name, reward in REWARDS.items() if (task := reward.task)]


def rows_of(solutions, tasks=None):
    rows = [{"problem": f"Question {n}?", "solution": s} for n, s in enumerate(solutions)]
    for row, task in zip(rows, tasks or (), strict=False):
        row["task"] = task
    return rows


def stored(folder: Path, rows, how="jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if how in ("jsonl", "json", "stream"):
        (folder / "a.png").write_bytes(picture())
        rows = [{"image": "a.png", **row} for row in rows]
        lines = [json.dumps(row) for row in rows]
        path = folder / f"rows.{'json' if how == 'json' else 'jsonl'}"
        path.write_text(f"[{','.join(lines)}]" if how == "json" else "\n".join(lines))
        return path
    columns = {
        name: [row.get(name) for row in rows] for name in dict.fromkeys(k for r in rows for k in r)
    }
    columns["image"] = [{"bytes": picture(), "path": None}] * len(rows)
    if how == "parquet":
        pq.write_table(pa.table(columns), folder / "train.parquet")
        return folder
    from datasets import Dataset, DatasetDict

    DatasetDict({"train": Dataset.from_dict(columns)}).save_to_disk(folder / "d", num_proc=1)
    return folder / "d"


def trained(path, tmp_path, rewards, how="jsonl", **options):
    """The training rows, as columns."""
    wanted = LoadOptions(cache=tmp_path / "cache", rewards=tuple(rewards), **options)
    if how == "stream":
        found = list(streamed_rows(read(open_set(path)), wanted, Report(path)))
        return {name: [row[name] for row in found] for name in ("solution", "task", "frame")}
    made, _ = training_set(open_set(path, keep_going=True), wanted)
    return {name: made[name][:] for name in made.column_names if name != "images"}


def scores(name, columns):
    """The reward of every row's own gold."""
    task = REWARDS[name].task
    answers = [f"<think>t</think><answer>{gold_text(s)}</answer>" for s in columns["solution"]]
    if task.has_points and None not in (golds := list(map(task.read_gold, columns["solution"]))):
        answers = [f"<answer>{task.answer_of(gold)}</answer>" for gold in golds]
    return REWARDS[name](answers, **columns)


# ---- what the named reward reads, it scores ---------------------------------------------------


@pytest.mark.parametrize(
    ("how", "column"),
    [
        *((how, c) for how in ("jsonl", "parquet") for c in ("absent", "null", "stated", "some")),
        *((how, "absent") for how in ("json", "dict", "stream")),
    ],
)
@pytest.mark.parametrize("task", GOLD)
def test_named_rewards_score_every_row_of_their_gold(task, how, column, tmp_path):
    gold = GOLD[task]
    stated = {"absent": None, "null": [None] * 9, "stated": [task] * 9, "some": [None, task] * 5}
    path = stored(tmp_path, rows_of(gold, stated[column]), how)
    names = [name for name, own in BY_TASK if own == task]
    # What most texts read as is not guessed: it is stated, or a reward of it is named.
    guessed = [] if TASK_NAMES[task].reads_most and column != "stated" else [[]]
    for rewards in ([*names, "vlrft_format"], *guessed):
        found = trained(path, tmp_path, rewards, how)
        assert len(found["solution"]) == len(gold)
        for name in names:
            stating = "confidence" not in name and "map" not in name  # the gold states none
            for score in scores(name, found):
                assert score == 1.0 if stating else score is not None


@pytest.mark.parametrize("gold", [["No Objects"] * 2, ["[]", "None"]])
def test_rows_of_empty_answers_alone_are_detection_where_that_is_named(gold, tmp_path):
    path = stored(tmp_path, rows_of(gold))
    assert scores("vlrft_detection_iou", trained(path, tmp_path, ["vlrft_detection_iou"])) == [1, 1]
    plain = trained(path, tmp_path, [])
    assert scores("vlrft_detection_iou", plain) == [1.0, 1.0] and plain["task"] == [None] * 2


golds = st.lists(
    st.one_of(*(st.sampled_from(GOLD[task]).map(lambda g, t=task: (t, g)) for task in GOLD)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(golds, st.booleans(), st.sets(st.sampled_from(list(GOLD)), min_size=1, max_size=3))
def test_no_row_is_kept_from_a_reward_that_reads_it(tmp_path_factory, rows, box_set, named):
    """Rows of any kinds without a task: each named reward scores what it reads, or says that it
    does not; a list of boxes, also an empty one, is no class names.
    """
    tmp_path = tmp_path_factory.mktemp("set")
    path = stored(tmp_path, rows_of([gold for _, gold in rows]))
    rewards = [next(n for n, t in BY_TASK if t == task) for task in sorted(named)]
    try:
        found = trained(path, tmp_path, rewards)
    except DataError as error:
        assert "cannot be read as" in str(error) and "row " in str(error)
        assert any(task not in named for task, _ in rows)
        return
    boxes = any(task in ("detection", "grounding") and gold.count(",") > 2 for task, gold in rows)
    for name in rewards:
        task = REWARDS[name].task.name
        for (_, gold), own, score in zip(rows, found["task"], scores(name, found), strict=True):
            reads = REWARDS[name].task.read_gold(gold_text(gold)) is not None
            boxed = REWARDS["vlrft_detection_iou"].task.read_gold(gold_text(gold))
            if task == "classification" and (boxed or (boxed is not None and boxes)):
                continue  # no class name
            assert (score is not None) == reads, (gold, name, own)
            assert not reads or own in (None, task)


def test_rewards_of_two_tasks_on_two_sets_of_which_one_states_its_task(tmp_path):
    rewards = ["vlrft_detection_iou", "vlrft_counting"]
    boxes = stored(tmp_path / "a", rows_of(GOLD["detection"], ["detection"] * 3))
    plain = stored(tmp_path / "b", rows_of(GOLD["detection"]))
    count = stored(tmp_path / "c", rows_of(GOLD["counting"]))
    for path, own, other in ((boxes, *rewards), (plain, *rewards), (count, *rewards[::-1])):
        found = trained(path, tmp_path, rewards)
        assert scores(own, found) == [1.0] * 3 and scores(other, found) == [None] * 3
        assert found["task"] == [REWARDS[own].task.name] * 3
    reports = [check_set(p, images=False, rewards=rewards) for p in (boxes, plain, count)]
    assert nothing_scored(rewards, reports) is None


def test_gold_that_two_named_rewards_read_is_scored_by_both_and_noted(tmp_path):
    rewards = ["vlrft_counting", "vlrft_classification"]
    path = stored(tmp_path, rows_of(["4", "3"]))
    found = trained(path, tmp_path, rewards)
    assert found["task"] == [None] * 2
    assert [scores(name, found) for name in rewards] == [[1.0, 1.0]] * 2
    (note,) = check_set(path, images=False, rewards=rewards).routing_notes(rewards)
    assert "2 rows state no task" in note and "counting and classification" in note
    done = CliRunner().invoke(app, ["data", "check", str(path), *flags(rewards)])
    assert done.exit_code == 0 and "2 rows state no task" in done.stdout


def test_the_form_of_a_set_gives_way_to_the_reward_that_is_named(tmp_path):
    """LISA's rows are grounding; a detection reward that is named scores them all the same."""
    (tmp_path / "a.png").write_bytes(picture())
    record = {"image_path": "a.png", "instruction": "the red one", "boxes": [[4, 5, 20, 15]]}
    lisa = tmp_path / "lisa.json"
    lisa.write_text(json.dumps([record]))
    turns = [{"from": "human", "value": "Where?"}, {"from": "gpt", "value": "[4, 5, 20, 15]"}]
    rec = tmp_path / "rec.jsonl"
    rec.write_text(json.dumps({"image": "a.png", "conversations": turns}))
    for path in (lisa, rec):
        for name in ("vlrft_grounding_iou", "vlrft_detection_iou"):
            assert scores(name, trained(path, tmp_path, [name])) == [1.0]
        both = trained(path, tmp_path, ["vlrft_grounding_iou", "vlrft_detection_iou"])
        assert both["task"] == ["grounding"]


@pytest.mark.parametrize(("value", "name"), [("4", "counting"), ("yes", "yes_no"), ("B", "choice")])
def test_conversations_about_other_things_than_boxes(value, name, tmp_path):
    (tmp_path / "a.png").write_bytes(picture())
    turns = [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": value}]
    path = tmp_path / "rec.jsonl"
    path.write_text(json.dumps({"image": "a.png", "conversations": turns}))
    reward = f"vlrft_{name}"
    assert scores(reward, trained(path, tmp_path, [reward])) == [1.0]


def test_boxes_and_prompts_go_into_pixels_without_a_task(tmp_path):
    view = ImageResize("qwen2_5_vl", 3136, 12_845_056)
    prompt = "Find it (between 0 and 1000)."
    rows = [{"problem": prompt, "solution": gold} for gold in (ONE, "No Objects", TWO)]
    found = trained(stored(tmp_path, rows), tmp_path, [], box_format="pixels", resize=view)
    assert found["task"] == [None] * 3 and found["frame"] == ["pixels"] * 3
    assert all("in pixels, x from 0 to 84" in m[0]["content"] for m in found["messages"])
    assert found["solution"][0] == "[1, 1, 25, 22]" and found["width"] == [84] * 3
    mixed = [{"problem": prompt, "solution": gold} for gold in (ONE, "4")]
    rewards = ["vlrft_grounding_iou", "vlrft_counting"]
    found = trained(
        stored(tmp_path / "m", mixed), tmp_path, rewards, box_format="pixels", resize=view
    )
    assert found["frame"] == ["pixels", None] and found["task"] == ["grounding", "counting"]
    assert found["messages"][1][0]["content"].endswith(prompt)


# ---- what cannot be scored --------------------------------------------------------------------


def flags(rewards):
    return [word for name in rewards for word in ("--reward", name)]


UNREAD = [
    ("vlrft_counting", ["4", "four", "3"], "'four' cannot be read as a whole number"),
    ("vlrft_choice", ["A", "cat"], "'cat' cannot be read as an option letter"),
    ("vlrft_yes_no", ["yes", "maybe"], "'maybe' cannot be read as yes or no"),
    ("vlrft_grounding_iou", [ONE, TWO], "cannot be read as exactly one box or 'No Objects'"),
    ("vlrft_detection_iou", [TWO, "a dog"], "'a dog' cannot be read as a list of boxes"),
    ("vlrft_classification", ["rose", TWO], "cannot be read as a class name"),
    ("vlrft_pointing", [TWO, "[1, 2]"], "cannot be read as one or several boxes"),
    ("vlrft_number", ["1.5 kg", "4 or 5"], "'4 or 5' cannot be read as one number"),
    ("vlrft_ocr", ["(12, 30)", TWO], "cannot be read as a text of 1 to"),
    ("vlrft_list", ["a, b", "[true]"], "'[true]' cannot be read as a list of names"),
    ("vlrft_ordering", ["a, b", "a, A"], "'a, A' cannot be read as a list of distinct names"),
]


@pytest.mark.parametrize(("reward", "solutions", "said"), UNREAD)
def test_gold_that_the_named_reward_cannot_read_is_an_error_with_its_row(
    reward, solutions, said, tmp_path
):
    path = stored(tmp_path, rows_of(solutions))
    with pytest.raises(DataError, match="row 1: the solution") as error:
        trained(path, tmp_path, [reward])
    assert said in str(error.value) and reward in str(error.value)
    done = CliRunner().invoke(app, ["data", "check", str(path), "--json", "--reward", reward])
    report = json.loads(done.stdout)
    assert done.exit_code == 1 and said in report["problems"][0]["problem"]
    assert report["good"] == report["rows"] - 1
    (found,) = [f for f in recipe_findings(path, reward) if f.rule == "reward-gold"]
    assert said in found.text


@pytest.mark.parametrize("task", ["det", "cls", "Detection ", "grounding ", "DETECTION", 3, True])
def test_a_task_that_is_none_always_stops_with_the_known_ones(task, tmp_path):
    path = stored(tmp_path, rows_of(["[1, 2, 3, 4]"] * 2, [None, task]))
    for rewards in ([], ["vlrft_detection_iou"]):
        with pytest.raises(DataError, match="row 1: unknown task") as error:
            trained(path, tmp_path, rewards)
        assert "known: detection, grounding, pointing, classification, counting" in str(error.value)
    assert check_set(path, images=False).unreadable == 1


def recipe_findings(path, *rewards, more=""):
    text = (
        f"swift rlhf --rlhf_type grpo --model x --dataset {path} --reward_funcs {' '.join(rewards)}"
    )
    (recipe,) = read_text(f"{text} {more}")
    return check_recipe(recipe)


NOTHING = [
    (rows_of(GOLD["detection"], ["detection"] * 3), "vlrft_counting", "3 detection"),
    (rows_of(["four", "five"]), "vlrft_counting", "2 rows without a task, as of"),
    (rows_of(["4"], [None]), "vlrft_detection_iou", "'4' cannot be read as a list of boxes"),
    (rows_of(["rose", "4"], ["classification", "counting"]), "vlrft_yes_no", "1 classification"),
    (rows_of([TWO]), "vlrft_classification", "cannot be read as a class name"),
]


@pytest.mark.parametrize(("rows", "reward", "said"), NOTHING)
def test_a_reward_that_would_score_no_row_of_any_set_is_named(rows, reward, said, tmp_path):
    path = stored(tmp_path, rows)
    report = check_set(path, images=False, rewards=[reward])
    report.leave_unread()
    problem = nothing_scored([reward, "vlrft_format"], [report])
    assert problem.startswith(f"--reward_funcs {reward}: no row of any data set")
    assert str(path) in problem and said in problem
    (found,) = [f for f in recipe_findings(path, reward) if f.rule == "reward-rows"]
    assert found.level == "problem" and said in found.text
    # A second set that it scores, or one of which nothing is known: no problem.
    gold = GOLD[REWARDS[reward].task.name]
    other = stored(tmp_path / "other", rows_of(gold))
    for more in (other, "some/hub_set"):
        found = [f for f in recipe_findings(f"{path} {more}", reward) if "reward" in f.rule]
        assert {f.level for f in found if f.rule.startswith("reward-")} <= {"note"}
    reports = [report, check_set(other, images=False, rewards=[reward])]
    assert (
        nothing_scored([reward], reports) is None
        and nothing_scored([reward], [report, None]) is None
    )
    # The rows of the first set train on, without a score.
    found = trained(path, tmp_path, [reward])
    assert scores(reward, found) == [None] * len(rows)


def test_the_task_of_a_known_hub_set_is_known_without_a_download():
    found = recipe_findings("laolao77/ViRFT_COCO", "vlrft_counting")
    assert any(f.rule == "reward-rows" and "ViRFT_COCO: detection" in f.text for f in found)
    found = recipe_findings("laolao77/ViRFT_COCO", "vlrft_detection_iou")
    assert not any(f.rule == "reward-rows" for f in found)


def test_the_run_stops_before_a_model_is_loaded(tmp_path):
    from support.plugin_run import import_plugin

    path = stored(tmp_path / "a", rows_of(GOLD["detection"], ["detection"] * 3))
    count = stored(tmp_path / "b", rows_of(GOLD["counting"]))
    # Held-out rows are not trained on: those that the reward would score do not count.
    more = ("--val_dataset", str(count))
    done = import_plugin("--dataset", str(path), "--reward_funcs", "vlrft_counting", *more)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "--reward_funcs vlrft_counting: no row of any data set" in done.stderr
    then = """
from swift.dataset import load_dataset
import sys
rows = [row["task"] for path in sys.argv[2:4] for row in load_dataset([path])[0]]
print(rows)
"""
    rewards = ("--reward_funcs", "vlrft_counting", "vlrft_detection_iou")
    done = import_plugin("--dataset", str(path), str(count), *rewards, then=then)
    assert done.returncode == 0, done.stderr[-3000:]
    assert str(["detection"] * 3 + ["counting"] * 3) in done.stdout


# ---- solutions that are no answer -------------------------------------------------------------

NO_ANSWER = [math.nan, math.inf, -math.inf, True, False, None, {"a": {"b": 1}}, [["x"]], ["a", "b"]]


@pytest.mark.parametrize("solution", NO_ANSWER, ids=str)
@pytest.mark.parametrize("task", [None, "classification"])
def test_a_missing_value_is_no_class_name(solution, task, tmp_path):
    rows = rows_of(["rose", solution, "tulip"], [task] * 3 if task else None)
    path = stored(tmp_path, rows)
    report = check_set(path)
    assert [one.place.row for one in report.problems] == [1] and report.unreadable == 1
    for rewards in ([], ["vlrft_classification"]):
        with pytest.raises(DataError, match=r"1 of 3 rows .*\n.*row 1: the (solution|row has no)"):
            trained(path, tmp_path, rewards)
    with pytest.raises(DataError, match="row 1"):
        convert_folder(path, tmp_path / "out")


def test_values_of_other_types_are_answers(tmp_path):
    import decimal

    columns = {
        "int": pa.array([4, 3]),
        "float": pa.array([4.0, 3.0]),
        "decimal": pa.array([decimal.Decimal(4), decimal.Decimal(3)]),
        "codes": pa.array(["4", "3"]).dictionary_encode(),
        "large": pa.array(["4", "3"], pa.large_string()),
    }
    image = [{"bytes": picture(), "path": None}] * 2
    for name, values in columns.items():
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"image": image, "problem": ["?"] * 2, "solution": values}), path)
        found = trained(path, tmp_path, ["vlrft_counting"])
        assert scores("vlrft_counting", found) == [1.0, 1.0], name
        assert check_set(path).good == 2
    words = stored(tmp_path / "words", rows_of(["nan", "none of these", "Infinity", "false"]))
    assert check_set(words).good == 4  # naan, said in a text


# ---- what data check and watch say ------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "fits", "never"),
    [
        (
            "counting",
            ["vlrft_counting", "vlrft_counting_soft", "vlrft_classification"],
            "detection",
        ),
        ("choice", ["vlrft_choice", "vlrft_classification"], "vlrft_counting"),
        ("yes_no", ["vlrft_yes_no"], "vlrft_counting"),
        ("grounding", ["vlrft_grounding_iou", "vlrft_detection_iou"], "vlrft_classification"),
        ("classification", ["vlrft_classification"], "vlrft_choice"),
    ],
)
def test_data_check_says_which_rewards_fit(task, fits, never, tmp_path):
    path = stored(tmp_path, rows_of(GOLD[task]))
    done = CliRunner().invoke(app, ["data", "check", str(path), "--json"])
    rewards = json.loads(done.stdout)["rewards"]
    assert {name for name, (rows, asked) in rewards.items() if rows == asked} >= set(fits)
    assert not any(never in name for name in rewards)
    stated = stored(tmp_path / "s", rows_of(GOLD[task], [task] * 4))
    done = CliRunner().invoke(app, ["data", "check", str(stated), "--json"])
    assert {REWARDS[name].task.name for name in json.loads(done.stdout)["rewards"]} == {task}
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("solution", "columns", "why"),
    [
        ("4", {"task": ["detection"] * 4}, "12 times a detection row"),
        ("four", {}, "12 times the gold solution cannot be read as a whole number"),
    ],
)
def test_a_reward_that_scores_nothing_in_the_first_steps_says_so(
    solution, columns, why, monkeypatch, caplog
):
    monkeypatch.setattr(watching, "_warned", set())
    caplog.set_level(logging.WARNING, logger="swift_vlrft")
    watched = watch("vlrft_counting", REWARDS["vlrft_counting"])
    for _ in range(5):
        watched(["<answer>4</answer>"] * 4, [solution] * 4, **columns)
    said = [m for m in caplog.messages if "got a score" in m]
    assert len(said) == 1
    assert said[0].startswith("vlrft_counting: none of the first 12 completions") and why in said[0]
    watched(["<answer>4</answer>"] * 4, ["4"] * 4)
    assert len([m for m in caplog.messages if "got a score" in m]) == 1


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"solution": "4", "task": "detection"}, "scored no row, so it teaches nothing: 8 times a"),
        ({"solution": "four"}, "8 gold solutions cannot be read"),
        ({"solution": "4", "vlrft_counting": None}, "the run scored none of its 8 rows"),
        ({"solution": "4", "vlrft_counting": math.nan}, "the run scored none of its 8 rows"),
        (
            {"solution": "4", "vlrft_counting": None, "vlrft_detection_iou": 0.5},
            "vlrft_counting: scored no row",
        ),
    ],
)  # fmt: skip
def test_a_log_in_which_a_reward_scored_nothing_is_a_finding(row, said, tmp_path):
    texts = [f"<think>t</think><answer>{n}</answer>" for n in (4, 3)] * 4
    lines = [json.dumps({"completion": text, **row}) for text in texts]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    arguments = ["score", str(tmp_path / "c.jsonl"), "--reward", "vlrft_counting", "--json"]
    done = CliRunner().invoke(app, arguments)
    flagged = json.loads(done.stdout)["flags"]
    assert done.exit_code == 1 and any(said in flag for flag in flagged), flagged
    # One row that it scored, and the log is one of several tasks.
    good = {"completion": texts[0], "solution": "4", "task": "counting", "vlrft_counting": 1.0}
    (tmp_path / "c.jsonl").write_text("\n".join([*lines, json.dumps(good)]))
    done = CliRunner().invoke(app, arguments)
    assert not any("no row" in f or "none of" in f for f in json.loads(done.stdout)["flags"])


# ---- rewards of others -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["jsonl", "parquet"])
@pytest.mark.parametrize("rewards", [("accuracy",), ("vlrft_format", "mine"), ("vlrft_format",)])
@pytest.mark.parametrize("gold", ['["a", "b"]', "[1, 2, 3]", '{"a": 1}', "", "[1,2,3,4]"])
def test_what_other_peoples_rewards_read_is_theirs_to_say(gold, rewards, how, tmp_path):
    path = stored(tmp_path, rows_of([gold, "cat"]), how)
    report = check_set(path, images=False, rewards=rewards)
    report.leave_unread()
    assert report.good == 2 and not report.problems
    dataset, found = training_set(open_set(path), LoadOptions(tmp_path / "cache", rewards=rewards))
    assert len(dataset) == found.good == 2


@pytest.mark.parametrize("strict", [False, True])
def test_a_stream_hands_on_what_the_loaded_set_does(strict, tmp_path):
    """Rows that no reward of ours reads are for those of others, or for the other sets."""
    path = stored(tmp_path, rows_of(["cat", "dog"]))
    wanted = LoadOptions(tmp_path / "cache", rewards=("vlrft_counting", "mine"), strict=strict)
    loaded, told = training_set(open_set(path), wanted)
    report = Report(path)
    streamed = list(streamed_rows(read(open_set(path)), wanted, report))
    assert [row["solution"] for row in streamed] == loaded["solution"][:] == ["cat", "dog"]
    assert report.problems == told.problems == [] and report.unread == told.unread
