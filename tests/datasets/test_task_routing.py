"""A set's rows are scored by the rewards that the command names: over the rewards, the column task
and the ways in which sets are stored.
"""

import decimal
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stored_sets import command, picture, train_on, write_table

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.validate import RowRules
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.rules.rows import nothing_scored, routing_notes
from swift_vlrft.recipe.run import resolve
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
    asks = "[x1, y1, x2, y2] in <answer>"
    rows = [{"problem": f"{n}? {asks}", "solution": s} for n, s in enumerate(solutions)]
    for row, task in zip(rows, tasks or (), strict=False):
        row["task"] = task
    return rows


def stored(folder: Path, rows, how="jsonl") -> Path:
    if how in ("parquet", "dict"):
        names = dict.fromkeys(name for row in rows for name in row)
        image = {"image": {"bytes": picture(), "path": None}}
        rows = [dict.fromkeys(names) | row | image for row in rows]
        if how == "parquet":
            return write_table(folder / "train.parquet", rows)
        from datasets import Dataset, DatasetDict

        DatasetDict({"train": Dataset.from_list(rows)}).save_to_disk(folder / "d")
        return folder / "d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.png").write_bytes(picture())
    lines = [json.dumps({"image": "a.png", **row}) for row in rows]
    path = folder / f"rows.{'json' if how == 'json' else 'jsonl'}"
    path.write_text(f"[{','.join(lines)}]" if how == "json" else "\n".join(lines))
    return path


def trained(path, tmp_path, rewards, how="jsonl", **options):
    """The training rows, as columns."""
    rows, _ = train_on(path, tmp_path / "cache", rewards=tuple(rewards), **options)
    return {name: [row[name] for row in rows] for name in rows[0].keys() - {"images"}}


def checked(path, *rewards):
    """The exit code of ``vlrft data check`` and its report."""
    flags = [word for name in rewards for word in ("--reward", name)]
    code, said = command("data", "check", path, "--json", *flags)
    return code, json.loads(said)


def scores(name, columns):
    """The reward of every row's own gold."""
    task = REWARDS[name].task
    answers = [f"<think>t</think><answer>{gold_text(s)}</answer>" for s in columns["solution"]]
    if task.has_points and None not in (golds := list(map(task.read_gold, columns["solution"]))):
        answers = [f"<answer>{task.answer_of(gold)}</answer>" for gold in golds]
    return REWARDS[name](answers, **columns)


# ---- what the named reward reads, it scores ---------------------------------------------------


COLUMNS = ("absent", "null", "stated", "some")
WAYS = ("jsonl", "parquet", "json", "dict")


@pytest.mark.parametrize(
    ("task", "column", "how"),  # every task with every column, and with four of the ways
    [
        (task, column, WAYS[(n + m) % len(WAYS)])
        for n, task in enumerate(GOLD)
        for m, column in enumerate(COLUMNS)
    ],
)
def test_named_rewards_score_every_row_of_their_gold(task, column, how, tmp_path):
    gold = GOLD[task]
    stated = {"absent": None, "null": [None] * 9, "stated": [task] * 9, "some": [None, task] * 5}
    path = stored(tmp_path, rows_of(gold, stated[column]), how)
    names = [name for name, own in BY_TASK if own == task]
    # What most texts read as is not guessed: it is stated, or a reward of it is named.
    guessed = [] if TASK_NAMES[task].reads_most and column != "stated" else [[]]
    for rewards in ([*names, "vlrft_format"], *guessed):
        columns = trained(path, tmp_path, rewards, how)
        assert len(columns["solution"]) == len(gold)
        for name in names:
            stating = "confidence" not in name and "map" not in name  # the gold states none
            for score in scores(name, columns):
                assert score == 1.0 if stating else score is not None


@pytest.mark.parametrize("beside", [TWO, "rose"])
def test_none_is_no_object_where_the_reward_or_the_task_says_so(beside, tmp_path):
    """Whatever other rows hold; a prompt is not rewritten before it is said."""
    resize = ImageResize("qwen2_5_vl", 3136, 12_845_056)
    options = {"box_format": "pixels", "resize": resize}
    path = stored(tmp_path / "none", rows_of(["None", beside]))
    _, report = train_on(path, tmp_path / "cache", **options)
    assert [one.place.row for one in report.problems] == [0]
    assert "may mean no object or be a class" in report.problems[0].problem
    stated = stored(tmp_path / "stated", rows_of(["None", beside], ["detection"]))
    alone = stored(tmp_path / "alone", rows_of(["None"]))
    for source, rewards in ((stated, []), (alone, ["vlrft_detection_iou"])):
        rows, _ = train_on(source, tmp_path / "cache", rewards=tuple(rewards), **options)
        assert "in pixels, x from 0 to 84" in rows[0]["messages"][0]["content"]
    rows, _ = train_on(alone, tmp_path / "cache", rewards=("vlrft_classification",), **options)
    assert "pixels" not in rows[0]["messages"][0]["content"]


pairs = st.sampled_from([(task, gold) for task, golds in GOLD.items() for gold in golds])


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(pairs, min_size=1, max_size=6),
    st.sets(st.sampled_from(list(GOLD)), min_size=1, max_size=3),
)
def test_no_row_is_kept_from_a_reward_that_reads_it(tmp_path_factory, rows, named):
    """Rows of any kinds without a task: each named reward scores what it reads, or says that it
    does not; what may be boxes, also none, may be no class name and no text in an image.
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
    for name in rewards:
        task = REWARDS[name].task.name
        for (_, gold), own, score in zip(rows, found["task"], scores(name, found), strict=True):
            reads = REWARDS[name].task.read_gold(gold_text(gold)) is not None
            if task in ("classification", "ocr") and read_boxes(gold_text(gold)) is not None:
                continue
            assert (score is not None) == reads, (gold, name, own)
            assert not reads or own in (None, task)


def test_gold_that_two_named_rewards_read_is_scored_by_both_and_noted(tmp_path):
    rewards = ("vlrft_counting", "vlrft_classification")
    path = stored(tmp_path, rows_of(["4", "3"]))
    found = trained(path, tmp_path, rewards)
    assert found["task"] == [None] * 2
    assert [scores(name, found) for name in rewards] == [[1.0, 1.0]] * 2
    report = check_set(path, images=False, rules=RowRules(rewards=rewards))
    (note,) = routing_notes(report, rewards)
    assert "2 rows" in note and "counting and classification" in note
    code, report = checked(path, *rewards)
    assert code == 0 and note in report["notes"]


def conversation(tmp_path, value):
    (tmp_path / "a.png").write_bytes(picture())
    turns = [{"from": "human", "value": "<image>Where?"}, {"from": "gpt", "value": value}]
    (tmp_path / "rec.jsonl").write_text(json.dumps({"image": "a.png", "conversations": turns}))
    return tmp_path / "rec.jsonl"


def test_the_form_of_a_set_gives_way_to_the_reward_that_is_named(tmp_path):
    """LISA's rows are grounding; a detection reward that is named scores them all the same."""
    rec, lisa = conversation(tmp_path, "[4, 5, 20, 15]"), tmp_path / "lisa.json"
    record = {"image_path": "a.png", "instruction": "the red one", "boxes": [[4, 5, 20, 15]]}
    lisa.write_text(json.dumps([record]))
    for path in (lisa, rec):
        for name in ("vlrft_grounding_iou", "vlrft_detection_iou"):
            assert scores(name, trained(path, tmp_path, [name])) == [1.0]
        both = trained(path, tmp_path, ["vlrft_grounding_iou", "vlrft_detection_iou"])
        assert both["task"] == ["grounding"]
    for value, name in (("4", "vlrft_counting"), ("yes", "vlrft_yes_no"), ("B", "vlrft_choice")):
        assert scores(name, trained(conversation(tmp_path, value), tmp_path, [name])) == [1.0]


# ---- what cannot be scored --------------------------------------------------------------------


UNREAD = {
    "counting": ["4", "some", "3"], "choice": ["A", "cat"], "yes_no": ["yes", "maybe"],
    "grounding_iou": [ONE, TWO], "detection_iou": [TWO, "a dog"], "classification": ["rose", TWO],
    "pointing": [TWO, "[1, 2]"], "number": ["1.5 kg", "4 or 5"], "ocr": ["(12, 30)", TWO],
    "list": ["a, b", "[true]"], "ordering": ["a, b", "a, A"],
}  # fmt: skip
"""The second of a reward's solutions is none."""


@pytest.mark.parametrize(("name", "solutions"), UNREAD.items())
def test_gold_that_the_named_reward_cannot_read_is_an_error_with_its_row(name, solutions, tmp_path):
    reward = f"vlrft_{name}"
    path, said = stored(tmp_path, rows_of(solutions)), f"{solutions[1]!r} cannot be read as"
    with pytest.raises(DataError, match=f"row 1: the solution(.|\n)*{reward}") as error:
        trained(path, tmp_path, [reward])
    assert said in str(error.value)
    code, report = checked(path, reward)
    assert code == 1 and said in report["problems"][0]["problem"]
    assert report["good"] == report["rows"] - 1
    (found,) = [f for f in recipe_findings(path, reward) if f.rule == "dataset"]
    assert said in found.text


def recipe_findings(path, *rewards):
    text = f"swift rlhf --rlhf_type grpo --model x --dataset {path} --reward_funcs"
    (recipe,) = read_text(f"{text} {' '.join(rewards)}")
    return check_recipe(resolve(recipe))


NOTHING = [
    (rows_of(GOLD["detection"], ["detection"] * 3), "vlrft_counting", "3 detection"),
    (rows_of(["some", "many"]), "vlrft_counting", "2 rows without a task"),
    (rows_of(["4"], [None]), "vlrft_detection_iou", "'4' cannot"),
    (rows_of(["rose", "4"], ["classification", "counting"]), "vlrft_yes_no", "1 classification"),
    (rows_of([TWO]), "vlrft_classification", "cannot be read"),
]


@pytest.mark.parametrize(("rows", "reward", "said"), NOTHING)
def test_a_reward_that_would_score_no_row_of_any_set_is_named(rows, reward, said, tmp_path):
    path = stored(tmp_path, rows)
    report = check_set(path, images=False, rules=RowRules(rewards=(reward,)))
    problem = nothing_scored([reward, "vlrft_format"], [report])
    assert problem.startswith(f"--reward_funcs {reward}:")
    assert str(path) in problem and said in problem
    (found,) = [f for f in recipe_findings(path, reward) if f.rule == "reward-rows"]
    assert found.level == "problem" and said in found.text
    # A second set that it scores, or one of which nothing is known: no problem.
    gold = GOLD[REWARDS[reward].task.name]
    other = stored(tmp_path / "other", rows_of(gold))
    for more in (other, "some/hub_set"):
        found = [f for f in recipe_findings(f"{path} {more}", reward) if "reward" in f.rule]
        assert {f.level for f in found if f.rule.startswith("reward-")} <= {"note"}
    reports = [report, check_set(other, images=False, rules=RowRules(rewards=(reward,)))]
    assert nothing_scored([reward], reports) is None
    assert nothing_scored([reward], [report, None]) is None
    # The rows of the first set train on, without a score.
    found = trained(path, tmp_path, [reward])
    assert scores(reward, found) == [None] * len(rows)


def test_the_task_of_a_known_hub_set_is_known_without_a_download():
    found = recipe_findings("laolao77/ViRFT_COCO", "vlrft_counting")
    assert any(f.rule == "reward-rows" and "ViRFT_COCO: detection" in f.text for f in found)
    found = recipe_findings("laolao77/ViRFT_COCO", "vlrft_detection_iou")
    assert not any(f.rule == "reward-rows" for f in found)


# ---- solutions that are no answer -------------------------------------------------------------

NO_ANSWER = [math.nan, math.inf, -math.inf, True, False, None, {"a": {"b": 1}}, [["x"]], ["a", "b"]]


@pytest.mark.parametrize("task", [None, "classification"])
def test_a_missing_value_is_no_class_name(task, tmp_path):
    rows = rows_of(["rose", *NO_ANSWER, "tulip"])
    path = stored(tmp_path, [row | {"task": task} for row in rows])
    report = check_set(path)
    assert [one.place.row for one in report.problems] == list(range(1, 10))
    assert report.unreadable == 9
    for rewards in ([], ["vlrft_classification"]):
        with pytest.raises(DataError, match="9 of 11 rows"):
            trained(path, tmp_path, rewards)
    with pytest.raises(DataError, match="row 1"):
        convert_folder(path, tmp_path / "out")


def test_values_of_other_types_are_answers(tmp_path):
    columns = {
        "int": pa.array([4, 3]),
        "float": pa.array([4.0, 3.0]),
        "decimal": pa.array([decimal.Decimal(4), decimal.Decimal(3)]),
        "codes": pa.array(["4", "3"]).dictionary_encode(),
        "large": pa.array(["4", "3"], pa.large_string()),
    }
    for name, values in columns.items():
        content = {"image": [picture()] * 2, "problem": ["?"] * 2, "solution": values}
        path = write_table(tmp_path / f"{name}.parquet", content)
        found = trained(path, tmp_path, ["vlrft_counting"])
        assert scores("vlrft_counting", found) == [1.0, 1.0], name
        assert check_set(path).good == 2
    words = stored(tmp_path / "words", rows_of(["nan", "none of these", "Infinity", "false"]))
    assert check_set(words).good == 4  # naan, said in a text


# ---- rewards of others -----------------------------------------------------------------------


OF_OTHERS = ['["a", "b"]', "[1, 2, 3]", '{"a": 1}', "", "[1,2,3,4]"]


@pytest.mark.parametrize(
    ("rewards", "how", "golds"),
    [
        (("accuracy",), "jsonl", OF_OTHERS),
        (("vlrft_format", "mine"), "parquet", OF_OTHERS),
        (("vlrft_format",), "jsonl", OF_OTHERS),
        (("vlrft_counting", "mine"), "jsonl", ["dog"]),
    ],
)
def test_what_other_peoples_rewards_read_is_theirs_to_say(rewards, how, golds, tmp_path):
    """And what no reward of ours reads is for the other sets."""
    for n, gold in enumerate(golds):
        path = stored(tmp_path / str(n), rows_of([gold, "cat"]), how)
        report = check_set(path, images=False, rules=RowRules(rewards=rewards))
        assert report.good == 2 and not report.problems
        for strict in (False, True):
            options = {"rewards": rewards, "strict": strict}
            loaded, told = train_on(path, tmp_path / "cache", **options)
            assert loaded["solution"][:] == [gold, "cat"] and told.good == 2
