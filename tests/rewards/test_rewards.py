"""What every reward does with its columns, with rows of other tasks, and with bad gold."""

import json
import logging
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace

import cloudpickle
import numpy
import pandas
import pyarrow
import pytest
from PIL import Image
from support.contract_rows import gold_by_task, two_rows
from support.hostile import answered as answer

from swift_vlrft import rewards
from swift_vlrft.parsing.answers import Answer
from swift_vlrft.rewards import (
    REWARDS,
    TASK_NAMES,
    contract,
    detection,
    matching,
    paper,
    vlrft_counting,
)
from swift_vlrft.rewards.contract import reward
from swift_vlrft.rewards.number import COUNTING


def task_of(name):
    return REWARDS[name].task.name if REWARDS[name].task else "detection"


# ---- a reward is a record ---------------------------------------------------------------------


@reward(COUNTING, needs=("solution", "scale"), takes=("tolerance",))
def vlrft_near_format(answer: Answer, gold: float, scale: float, tolerance: float | None) -> float:
    """1 where the count is near; the name says "format", the record does not."""
    return float(
        answer.number is not None and abs(answer.number - gold) <= (tolerance or 0) * scale
    )


def test_a_new_reward_is_one_function():
    texts, golds = [answer("4"), answer("6"), answer("6")], ["4", "5", "many"]
    assert vlrft_near_format(texts, golds, scale=[1, 1, 1]) == [1.0, 0.0, None]
    assert vlrft_near_format(texts, golds, scale=[1, 1, 1], tolerance=[1, 1, 1]) == [1.0, 1.0, None]
    assert vlrft_near_format(texts, golds, scale=[1] * 3, task=["counting", "ocr", None])[1] is None
    assert vlrft_near_format.__name__ == "vlrft_near_format"
    assert vlrft_near_format.__doc__.startswith("1 where the count is near")
    assert not vlrft_near_format.scores_format
    with pytest.raises(ValueError, match="vlrft_near_format: .*'scale'"):
        vlrft_near_format(texts, golds)
    with pytest.raises(ValueError, match="vlrft_near_format: completions "):
        vlrft_near_format(texts[0], golds[:1], scale=[1])


def test_what_the_rewards_say_of_themselves():
    def score(name, *confidences):
        boxes = ([0, 0, 100, 100], [200, 0, 300, 100])
        pairs = zip(boxes, confidences, strict=True)
        said = [{"Position": box, "Confidence": confidence} for box, confidence in pairs]
        return REWARDS[name]([answer(said)], ["[0, 0, 100, 100]"])

    for name, record in REWARDS.items():
        assert record.__name__ == name and record.__doc__ and "completions" not in record.__doc__
        looks = record.task is matching.DETECTION and score(name, 0.9, 0.2) != score(name, 0.1, 0.7)
        assert record.reads_confidence == looks
        assert not (record.scores_format and record.needs)
        assert not (record.recommended and record in vars(paper).values())
    assert REWARDS["vlrft_format"].scores_format and REWARDS["vlrft_detection_format"].scores_format
    assert TASK_NAMES["detection"].has_boxes and TASK_NAMES["grounding"].has_boxes


def test_a_reward_is_imported_and_pickled_by_its_name():
    for record in (*REWARDS.values(), vlrft_near_format):
        for module in (pickle, cloudpickle):  # the second is Ray's
            assert module.loads(module.dumps(record)) is record
    for name, record in REWARDS.items():
        assert getattr(rewards, name) is record and name in rewards.__all__
    with pytest.raises(ImportError, match="vlrft_nothing"):
        from swift_vlrft.rewards import vlrft_nothing  # noqa: F401


@pytest.mark.slow
def test_a_reward_scores_in_other_processes():
    names = ["vlrft_counting", "vlrft_detection_iou", "vlrft_choice"]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        calls = [pool.submit(REWARDS[name], [answer("4")], ["4"]) for name in names]
        assert [call.result() for call in calls] == [[1.0], [None], [None]]
    from datasets import Dataset

    rows = Dataset.from_dict({"text": [answer("4"), answer("5")], "solution": ["4", "4"]})
    scored = rows.map(scores, num_proc=2, batched=True, fn_kwargs={"reward": vlrft_counting})
    assert scored["score"][:] == [1.0, 0.0]


def scores(batch, reward):
    return {"score": reward(batch["text"], batch["solution"])}


def test_one_answer_is_scored_by_name():
    assert rewards.score("vlrft_number", answer("41.8"), "42", task="counting") is None
    assert rewards.score("vlrft_format", answer("4")) == 1.0
    with pytest.raises(ValueError, match="vlrft_nothing is no reward; known: .*vlrft_counting"):
        rewards.score("vlrft_nothing", "", "")


def test_an_error_names_reward_column_and_row():
    for texts, golds, message in (
        ([answer("4"), None], ["4", "4"], "completions: row 1 is None"),
        ([answer("4")] * 3, ["4"], "3 completions, but 1 values in .*'solution'; row 1 has no sol"),
        ([answer("4")], ["4"] * 2, "1 completions, but 2 values .*; row 1 has no completion"),
        ([answer("4")], None, "the column 'solution' is missing"),
    ):
        with pytest.raises(ValueError, match=f"vlrft_counting: {message}"):
            vlrft_counting(texts, golds)


def test_the_dynamic_threshold_rises():
    def score(side, step=None):
        state = None if step is None else SimpleNamespace(global_step=step, max_steps=100)
        texts, golds = [answer(f"[[0, 0, 100, {side}]]")], ["[[0, 0, 100, 100]]"]
        return REWARDS["vlrft_detection_iou_dynamic"](texts, golds, trainer_state=state)[0]

    # 0.5 from the start, and where there is no trainer; 0.75 from 10 % of the steps, then 0.9
    assert [score(60, step) for step in (None, 0, 9, 10)] == pytest.approx([0.6, 0.6, 0.6, 0.0])
    assert [score(80, step) for step in (10, 24, 25, 100)] == pytest.approx([0.8, 0.8, 0.0, 0.0])


def test_the_adaptive_threshold_rises_with_its_logged_means():
    name = "vlrft_detection_iou_adaptive"

    def score(*means):
        history = [{"step": 1, "loss": 0.1}, *({f"rewards/{name}/mean": m} for m in means)]
        state = SimpleNamespace(log_history=history)
        texts, golds = [answer("[[0, 0, 100, 60]]")], ["[[0, 0, 100, 100]]"]
        return REWARDS[name](texts, golds, trainer_state=state)[0]

    nan = float("nan")  # a step whose rows were all of another task
    assert [score(), score(*[0.9] * 4), score(*[0.5] * 99)] == pytest.approx([0.6] * 3)
    assert [score(*[0.9] * 4, nan, None, 0.9), score(*[0.6] * 5, *[0.0] * 99)] == [0.0, 0.0]
    rewards_of = [contract.logged_means(SimpleNamespace(log_history=h), "x") for h in ([], None)]
    assert rewards_of == [[], []]
    means = [0.6] * 9
    assert detection.threshold_after(means) == 0.75
    assert detection.threshold_after([*means, 0.6]) == detection.threshold_after(means * 9) == 0.9


# ---- a group ------------------------------------------------------------------------------------


@reward(COUNTING, sees_group=True)
def vlrft_as_most(answer: Answer, gold: float, others: list[Answer]) -> float:
    """The share of the group's other answers that state the same number."""
    return sum(other.number == answer.number for other in others) / 10


def picture(n):
    return Image.new("RGB", (4, 4), (n, 0, 0))


CALLS = {
    "TRL": lambda n: {"prompts": [{"content": [{"image": picture(n)}]}], "image": picture(n)},
    "ms-swift": lambda n: {"prompt_id": "prompt_0", "images": [{"bytes": b"\0", "path": f"{n}"}]},
    "completions.jsonl": lambda n: {"prompt": f"{n}"},
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_reward_sees_the_other_answers_to_its_row_alone(call):
    """Two groups that differ in their picture; of the second, a row was dropped."""
    said, golds = ["4", "4", "5", "4", "4"], ["4"] * 5
    rows = [call(n) for n in (0, 0, 0, 1, 1)]
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    scores = vlrft_as_most(list(map(answer, said)), golds, **columns)
    assert scores == [0.1, 0.1, 0.0, 0.1, 0.1]
    scores = vlrft_as_most(list(map(answer, said)), golds, task=["ocr"] * 3 + [None] * 2, **columns)
    assert scores == [None] * 3 + [0.1, 0.1]


def in_process(rank, store, queue):
    import torch

    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    said = [["4", "4", "5"], ["4", "9"]][rank]  # four answers to one row, and one to another
    columns = {"prompt_id": [["p", "p", "p"], ["p", "q"]][rank], "trainer_state": None}
    queue.put((rank, vlrft_as_most(list(map(answer, said)), ["4"] * len(said), **columns)))
    torch.distributed.barrier()


@pytest.mark.slow
def test_a_group_may_lie_in_several_processes(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    parts = [spawn.Process(target=in_process, args=(n, tmp_path / "s", queue)) for n in range(2)]
    for part in parts:
        part.start()
    scores = dict(queue.get(timeout=300) for _ in parts)
    for part in parts:
        part.join()
    assert scores == {0: [0.2, 0.2, 0.0], 1: [0.2, 0.0]}


def test_a_reward_without_a_column_of_prompts_sees_no_group():
    with pytest.raises(ValueError, match="vlrft_as_most: a column that tells groups .*prompt_id"):
        vlrft_as_most([answer("4")], ["4"])


# ---- columns ----------------------------------------------------------------------------------


def test_a_run_with_several_tasks_routes_each_row():
    tasks, golds = list(gold_by_task()), list(gold_by_task().values())
    # What ms-swift adds is taken, too.
    extra = {"messages": [[]], "images": [None], "prompt_id": ["p"], "rollout_infos": [{}]}
    for name, record in REWARDS.items():
        scores = record([answer("4")] * len(tasks), golds, task=tasks)
        scored = [task for task, value in zip(tasks, scores, strict=True) if value is not None]
        assert scored == ([record.task.name] if record.task else tasks)
        gold = gold_by_task()[task_of(name)]
        (value,) = record([answer("4")], [gold], task=[None], is_truncated=[False], **extra)
        assert 0.0 <= value <= 1.0
        unknown = record([answer("4")], ["?"], task=["unknown"])
        assert unknown == ([None] if record.task else record([answer("4")], ["?"]))
        if record.task:  # what another task's row lacks is no matter
            assert record(["a"], [None], task=["unknown"]) == [None]


def _pandas(values, **kind):
    return pandas.Series(values, index=range(7, 7 + len(values)), **kind)


COLUMNS = {
    "tuple": tuple,
    "numpy": numpy.array,
    "numpy objects": lambda values: numpy.array(values, dtype=object),
    "numpy bytes": lambda values: numpy.array([value.encode() for value in values]),
    "numpy scalars": lambda values: list(numpy.array(values)),
    "pandas": _pandas,
    "pandas strings": lambda values: _pandas(values, dtype="string"),
    "pandas categories": lambda values: _pandas(values, dtype="category"),
    "arrow": pyarrow.array,
    "arrow in pieces": lambda values: pyarrow.chunked_array([values]),
    "arrow scalars": lambda values: list(pyarrow.array(values)),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_may_be_of_any_kind(kind):
    column = COLUMNS[kind]
    for name, record in REWARDS.items():
        (texts, golds), tasks = two_rows(name), [task_of(name)] * 2
        expected = record(texts, golds, task=tasks, aliases=["x", "y"])
        assert None not in expected
        scores = record(
            column(texts), column(golds), task=column(tasks), aliases=column(["x", "y"])
        )
        assert scores == expected and {*map(type, scores)} == {float}, name
        other = record(texts, golds, task=column(["unknown", tasks[1]]))
        assert other == ([None, expected[1]] if record.task else expected), name


def test_a_task_is_one_for_all_rows_or_not_stated():
    missing = [None, numpy.nan, numpy.array(None), [None, numpy.nan], [pandas.NA, ""]]
    for name, record in REWARDS.items():
        (texts, golds), task = two_rows(name), task_of(name)
        expected = record(texts, golds)
        stated = [task, numpy.str_(task), numpy.array(task), pyarrow.scalar(task)]
        for value in [*stated, *missing, pyarrow.nulls(2)]:
            assert record(texts, golds, task=value, aliases=value) == expected, (name, value)
        for value in ("unknown", numpy.str_("unknown"), pyarrow.scalar("unknown")):
            assert record(texts, golds, task=value) == ([None] * 2 if record.task else expected)


def test_a_gold_may_be_a_number_or_an_array():
    box = answer("[0, 0, 10, 10]")
    golds = [numpy.array([0, 0, 10, 10]), pyarrow.scalar([0, 0, 10, 10]), [0, 0, 10, 10]]
    golds += [{"boxes": numpy.array([[0, 0, 10, 10]])}, [{"bbox": numpy.array([0, 0, 10, 10])}]]
    for name in ("vlrft_detection_iou", "vlrft_grounding_acc50"):
        assert REWARDS[name]([box] * len(golds), golds) == [1.0] * len(golds)
    assert REWARDS["vlrft_grounding_iou"]([box], numpy.array([[0, 0, 10, 10]])) == [1.0]
    counting = REWARDS["vlrft_counting"]
    counts = [4, numpy.int64(4), numpy.float32(4), pyarrow.scalar(4), numpy.array(4)]
    assert counting([answer("4")] * 5, counts) == [1.0] * 5
    assert counting([answer("4")] * 2, numpy.array([4, numpy.nan])) == [1.0, None]
    odd = [{(1, 2): 3}, {1, 2}, object(), float("nan")]  # no gold, and no error
    assert counting([answer("4")] * 4, odd) == [None] * 4


@pytest.mark.parametrize("column", [tuple, json.dumps, numpy.array])
def test_accepted_texts_are_a_column_of_any_kind(column):
    accepted = ["ITC  Limited", "ITC Ltd.", "itc"]
    texts = [answer(text) for text in (*accepted, "ITC Limited, India", "itd")]
    for name, last in (("ocr", 2 / 3), ("ocr_exact", 0.0)):
        aliases = [column(accepted)] * len(texts)
        scores = REWARDS[f"vlrft_{name}"](texts, ["ITC Limited, India"] * 5, aliases=aliases)
        assert scores == pytest.approx([1.0] * 4 + [last])


def test_a_missing_or_short_column_is_an_error_that_names_it():
    for name, record in REWARDS.items():
        if "solution" in record.needs:
            with pytest.raises(ValueError, match=f"{name}.*'solution'.*answer, images"):
                record(["a"], images=[1], answer=[2])
            with pytest.raises(ValueError, match=f"{name}: 3 .* 2 .*'solution'"):
                record(["a", "b", "c"], ["x", "y"])
            with pytest.raises(ValueError, match=f"{name}: 1 .* str .*'solution'"):
                record(["a"], "x")
        for column in ("task",) * bool(record.task) + record.takes:
            with pytest.raises(ValueError, match=f"{name}: 1 .* 2 .*'{column}'"):
                record(["a"], ["x"], **{column: ["a", "b"]})


# ---- gold that cannot be read -----------------------------------------------------------------


def test_an_unreadable_gold_gives_none_and_one_warning(caplog):
    contract._warned.clear()
    for _ in range(3):
        golds = ["4", "many", "4", "many"]
        assert REWARDS["vlrft_counting"]([answer("4")] * 4, golds) == [1.0, None, 1.0, None]
    with caplog.at_level(logging.WARNING, logger="swift_vlrft"):
        (message,) = caplog.messages
        assert "vlrft_counting" in message and "row 1" in message and "'many'" in message
        for number in range(30):
            REWARDS["vlrft_counting"]([answer("4")], [f"not {number}"])
        assert caplog.messages == [message]
