"""Every reward: its formula by hand, its routing, and what it says of bad input."""

import json
import logging
import math
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from swift_vlrft.datasets.row import Row, RowLocation
from swift_vlrft.datasets.validate import row_problem
from swift_vlrft.parsing import answers
from swift_vlrft.rewards import REWARDS, contract, matching

GOLD = "<answer>[{'Position': [0, 0, 100, 100], 'Confidence': 1}]</answer>"
GOLD_OF = {
    "detection": GOLD,
    "grounding": "<answer>(0,0),(100,100)</answer>",
    "classification": "<answer>A320</answer>",
    "counting": "4",
    "choice": "B",
    "yes_no": "<answer> yes </answer>",
    "pointing": "[[0, 0, 100, 100], [200, 0, 300, 100]]",
    "ocr": "<answer>Grand  Hôtel\n№ 4</answer>",
    "number": "<answer>-1,234.50</answer>",
    "list": '<answer>["red", "dark-blue", "red"]</answer>',
    "ordering": "cat; dog; bird",
}
"""An answer to the gold of pointing, which is boxes."""


def answer(text):
    return f"<think>t</think>\n<answer>{text}</answer>"


def score(name, text, gold=GOLD, **columns):
    return REWARDS[f"vlrft_{name}"]([answer(text)], [gold], **columns)[0]


def test_the_family_is_complete():
    detection = ["iou", "confidence", "map", "map50", "f1", "iou_dynamic", "format"]
    assert set(REWARDS) == {
        *(f"vlrft_detection_{name}" for name in detection),
        *(f"vlrft_paper_{name}" for name in ("iou", "confidence")),
        *(f"vlrft_grounding_{name}" for name in ("iou", "giou", "acc50")),
        *(f"vlrft_{name}" for name in ("classification", "counting", "counting_soft")),
        *(f"vlrft_{name}" for name in ("choice", "yes_no", "format")),
        *(f"vlrft_{name}" for name in ("pointing", "ocr", "ocr_exact", "number", "list")),
        "vlrft_ordering",
    }
    assert all(function.__name__ == name for name, function in REWARDS.items())


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.8), (9, 0.8), (10, 0.8), (24, 0.8), (25, 0.0), (100, 0.0)]
)
def test_the_dynamic_threshold_rises(step, expected):
    state = SimpleNamespace(global_step=step, max_steps=100)
    text = "[{'Position': [0, 0, 100, 80]}]"
    assert score("detection_iou_dynamic", text, trainer_state=state) == pytest.approx(expected)
    assert score("detection_iou_dynamic", text) == pytest.approx(0.8)  # no trainer: the start


def test_another_schedule_by_environment_variable(monkeypatch):
    state = SimpleNamespace(global_step=50, max_steps=100)
    monkeypatch.setenv("VLRFT_IOU_SCHEDULE", "0:0.6,0.5:0.95")
    assert score("detection_iou_dynamic", "[[0, 0, 100, 80]]", trainer_state=state) == 0.0
    assert score("detection_iou_dynamic", "[[0, 0, 100, 55]]") == 0.0
    for bad in ("0.5", "0.1:0.5", "0:0.5,0:0.6", "0:2", "0:x", "0:nan"):
        monkeypatch.setenv("VLRFT_IOU_SCHEDULE", bad)
        with pytest.raises(ValueError, match="VLRFT_IOU_SCHEDULE"):
            score("detection_iou_dynamic", "[]")


def test_a_run_with_several_tasks_routes_each_row():
    tasks = list(GOLD_OF)
    completions = [answer("4")] * len(tasks)
    for name, function in REWARDS.items():
        scores = function(completions, list(GOLD_OF.values()), task=tasks)
        own = REWARDS[name].task
        scored = [task for task, value in zip(tasks, scores, strict=True) if value is not None]
        assert scored == (tasks if own is None else [own.name])
        not_stated = function(completions[:1], [GOLD_OF[own.name] if own else ""], task=[None])
        assert not_stated[0] is not None
        assert function(completions[:1], ["?"], task=["unknown"])[0] == (
            1.0 if own is None else None
        )


def test_columns_that_ms_swift_adds_are_taken():
    extra = {"messages": [[]], "images": [None], "prompt_id": ["p"], "rollout_infos": [{}]}
    for name, function in REWARDS.items():
        gold = GOLD_OF[REWARDS[name].task.name] if REWARDS[name].task else ""
        values = function([answer("x")], [gold], trainer_state=None, is_truncated=[False], **extra)
        assert len(values) == 1
        assert 0.0 <= values[0] <= 1.0


def _arrow(values):
    return pytest.importorskip("pyarrow").array(values)


def _numpy(values, **kind):
    return pytest.importorskip("numpy").array(values, **kind)


def _pandas(values, **kind):
    return pytest.importorskip("pandas").Series(values, index=range(7, 7 + len(values)), **kind)


COLUMNS = {
    "tuple": tuple,
    "numpy": _numpy,
    "numpy objects": lambda values: _numpy(values, dtype=object),
    "numpy bytes": lambda values: _numpy([value.encode() for value in values]),
    "numpy scalars": lambda values: list(_numpy(values)),
    "pandas": _pandas,
    "pandas strings": lambda values: _pandas(values, dtype="string"),
    "pandas categories": lambda values: _pandas(values, dtype="category"),
    "arrow": _arrow,
    "arrow in pieces": lambda values: pytest.importorskip("pyarrow").chunked_array([values]),
    "arrow scalars": lambda values: list(_arrow(values)),
}
TWO_OF = {
    "detection": ["[{'Position': [0, 0, 100, 100]}]", "No Objects"],
    "grounding": ["(0,0),(100,100)", "[5, 5, 9, 9]"],
    "classification": ["A320", "cat"],
    "counting": ["4", "3"],
    "choice": ["B", "A"],
    "yes_no": ["yes", "no"],
    "pointing": ["[0, 0, 100, 100]", "No Objects"],
    "ocr": ["[0, 0, 100, 91]", "Exit"],
    "number": ["0.5", "7"],
    "list": ["[0, 0, 100, 90]", "cat"],
    "ordering": ["[0, 90, 100]", "cat"],
}


# Every reward and every kind, with two of the others each.
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, [*COLUMNS][k % len(COLUMNS)]) for n, name in enumerate(REWARDS) for k in (n, n + 5)],
)
def test_a_column_may_be_of_any_kind(name, kind):
    task = REWARDS[name].task.name if REWARDS[name].task else "detection"
    golds = TWO_OF[task]
    texts = [answer("[0, 0, 100, 90]"), answer(golds[1])]
    column, reward = COLUMNS[kind], REWARDS[name]
    expected = reward(texts, golds, task=[task, task], aliases=["x", "y"])
    assert None not in expected
    made = reward(
        column(texts), column(golds), task=column([task, task]), aliases=column(["x", "y"])
    )
    assert made == expected
    assert all(type(value) is float for value in made)
    other = reward(texts, golds, task=column(["unknown", task]))
    assert other == ([None, expected[1]] if REWARDS[name].task else expected)


@pytest.mark.parametrize("name", REWARDS)
def test_a_task_is_one_for_all_rows_or_not_stated(name):
    numpy, pandas, pyarrow = map(pytest.importorskip, ("numpy", "pandas", "pyarrow"))
    task = REWARDS[name].task.name if REWARDS[name].task else "detection"
    golds, reward = TWO_OF[task], REWARDS[name]
    texts = [answer("[0, 0, 100, 90]"), answer(golds[1])]
    expected = reward(texts, golds)
    one = [task, numpy.str_(task), numpy.array(task), pyarrow.scalar(task)]
    none = [
        None,
        numpy.nan,
        numpy.array(None),
        [None, numpy.nan],
        [pandas.NA, ""],
        pyarrow.nulls(2),
    ]
    for value in one + none:
        assert reward(texts, golds, task=value, aliases=value) == expected, value
    for value in ("unknown", numpy.str_("unknown"), pyarrow.scalar("unknown")):
        assert reward(texts, golds, task=value) == (
            [None, None] if REWARDS[name].task else expected
        )


def test_a_gold_may_be_a_number_or_an_array():
    numpy, pyarrow = map(pytest.importorskip, ("numpy", "pyarrow"))
    box = answer("[0, 0, 10, 10]")
    golds = [numpy.array([0, 0, 10, 10]), pyarrow.scalar([0, 0, 10, 10]), [0, 0, 10, 10]]
    golds += [{"boxes": numpy.array([[0, 0, 10, 10]])}, [{"bbox": numpy.array([0, 0, 10, 10])}]]
    for name in ("vlrft_detection_iou", "vlrft_grounding_acc50"):
        assert REWARDS[name]([box] * len(golds), golds) == [1.0] * len(golds)
    assert REWARDS["vlrft_grounding_iou"]([box], numpy.array([[0, 0, 10, 10]])) == [1.0]
    counts = [4, numpy.int64(4), numpy.float32(4), pyarrow.scalar(4), numpy.array(4)]
    assert REWARDS["vlrft_counting"]([answer("4")] * 5, counts) == [1.0] * 5
    assert REWARDS["vlrft_counting"]([answer("4")] * 2, numpy.array([4, numpy.nan])) == [1.0, None]
    odd = [{(1, 2): 3}, {1, 2}, object(), float("nan")]  # no gold, and no error
    assert REWARDS["vlrft_counting"]([answer("4")] * 4, odd) == [None] * 4
    torch = pytest.importorskip("torch")
    assert REWARDS["vlrft_counting"]([answer("4")] * 2, torch.tensor([4, 5])) == [1.0, 0.0]


@pytest.mark.parametrize("name", [name for name in REWARDS if not name.endswith("format")])
def test_a_missing_or_short_column_is_an_error_that_names_it(name):
    with pytest.raises(ValueError, match=rf"{name}.*'solution'.*missing.*given: answer, images"):
        REWARDS[name](["a"], images=[1], answer=[2])
    with pytest.raises(ValueError, match=rf"{name}: 3 completions, but 2 values .*'solution'"):
        REWARDS[name](["a", "b", "c"], ["x", "y"])
    with pytest.raises(ValueError, match=rf"{name}: 1 completions, but one str .*'solution'"):
        REWARDS[name](["a"], "x")
    with pytest.raises(ValueError, match=rf"{name}: 1 completions, but 2 values .*'task'"):
        REWARDS[name](["a"], ["x"], task=["a", "b"])


def test_aliases_of_another_length_are_an_error():
    with pytest.raises(ValueError, match="vlrft_classification: 1 completions, but 2 .*'aliases'"):
        REWARDS["vlrft_classification"](["a"], ["x"], aliases=[["a"], ["b"]])


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("detection_iou", "a dog"),
        ("detection_map", "[{'Position': [9, 9, 1, 1]}]"),
        ("paper_iou", ""),
        ("grounding_iou", "[1, 2, 3, 4] [1, 2, 3, 5]"),
        ("grounding_giou", "[9, 9, 1, 1]"),
        ("pointing", "[50, 50]"),
        ("ocr", " "),
        ("ocr_exact", "a" * 10_001),
        ("number", "4 or 5"),
        ("list", "[true]"),
        ("ordering", "cat, Cat"),
        ("classification", " . "),
        ("counting", "four"),
        ("counting_soft", "2.5"),
        ("choice", "A or B"),
        ("yes_no", "maybe"),
    ],
)
def test_an_unreadable_gold_gives_none_and_one_warning(name, bad, caplog):
    contract._warned.clear()
    task = REWARDS[f"vlrft_{name}"].task.name
    with caplog.at_level(logging.WARNING, logger="swift_vlrft"):
        for _ in range(3):
            values = REWARDS[f"vlrft_{name}"](
                [answer("x")] * 4, [GOLD_OF[task], bad, GOLD_OF[task], bad]
            )
            assert [value is None for value in values] == [False, True, False, True]
    assert len(caplog.messages) == 1
    assert f"vlrft_{name}" in caplog.messages[0]
    assert "row 1" in caplog.messages[0]


def test_a_missing_gold_of_another_task_is_no_matter(caplog):
    assert REWARDS["vlrft_counting"](["a"], [None], task=["detection"]) == [None]
    assert REWARDS["vlrft_counting"]([answer("4")], [4]) == [1.0]  # a number column
    assert not caplog.messages


def test_scores_do_not_depend_on_the_batch():
    texts = ["[[0, 0, 100, 80]]", "No Objects", "?", "[[0, 0, 1, 1]]"]
    together = REWARDS["vlrft_detection_iou"]([answer(text) for text in texts], [GOLD] * 4)
    assert together == [score("detection_iou", text) for text in texts]
    assert all(math.isfinite(value) for value in together)


def test_importing_the_rewards_is_light():
    code = (
        "import sys, swift_vlrft.rewards\n"
        "heavy = {'torch', 'swift', 'transformers', 'numpy', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_data_preparation_finds_an_unreadable_solution():
    def problem_of(task, gold):
        columns = {"task": task, "frame": "norm1000"}
        problem = row_problem(Row(RowLocation(Path("a.parquet"), 0), {}, "?", gold, columns))
        return problem.problem if problem else None

    for task, gold in GOLD_OF.items():
        assert problem_of(task, gold) is None
    for task in ("detection", "grounding", "pointing", "list"):
        assert problem_of(task, "No Objects") is None
    problem = problem_of("grounding", "a dog")
    holds = "exactly one box or 'No Objects' (grounding)"
    assert problem == f"the solution 'a dog' cannot be read as {holds}"


@pytest.mark.parametrize("seed", range(30))
def test_many_boxes_score_as_few_do(seed, monkeypatch):
    """Pairs as a list, found by Python or by numpy, or as a table: no other numbers."""
    generator = random.Random(seed)
    names = ["dog", "cat", None][: generator.randint(1, 3)]

    def boxes(count):
        found = []
        for _ in range(count):
            x, y = generator.randint(0, 90), generator.randint(0, 90)
            box = [x, y, x + generator.randint(200, 300), y + generator.randint(200, 300)]
            row = {"Position": box, "Confidence": generator.choice([0.2, 0.5, 0.9])}
            label = generator.choice([*names, "bird"])
            found.append(row | ({"label": label} if label else {}))
        return f"<answer>{json.dumps(found)}</answer>"

    completion, solution = boxes(generator.randint(60, 120)), boxes(generator.randint(16, 30))
    scores = []
    for few, many in ((10**9, 10**9), (0, 10**9), (0, 0)):
        monkeypatch.setattr(matching, "FEW_COMPARED", few)
        monkeypatch.setattr(matching, "MANY_PAIRS", many)
        answers.forget()
        scores.append(
            {
                name: REWARDS[name]([completion], [solution])[0]
                for name in REWARDS
                if name.startswith("vlrft_detection")
            }
        )
    assert scores[0] == pytest.approx(scores[1], abs=1e-12)
    assert scores[0] == pytest.approx(scores[2], abs=1e-12)
    assert scores[0]["vlrft_detection_map50"] > 0
