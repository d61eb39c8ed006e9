"""What training logs of each task, beside a trainer that groups, gathers and keeps as ms-swift's.

The rows of both processes are handed in as one list, as `_gather_and_flatten` returns them.
"""

from collections import defaultdict, deque
from types import SimpleNamespace

import pytest
import torch

from swift_vlrft.swift_plugin.tasks import LONGEST_NAME, MOST_TASKS, Tasks

pytestmark = pytest.mark.slow  # ms-swift is imported


class SwiftsTrainer:
    """The parts of ms-swift 4.6's GRPO trainer that are read or written."""

    num_generations, num_generations_eval, dynamic_num_samples = 2, 1, False

    def __init__(self, names, size):
        self.reward_func_names, self.reward_weights = names, torch.ones(len(names))
        self.model = SimpleNamespace(training=True)
        self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
        self._logs = {"prompt": deque(maxlen=size), "completion": deque(maxlen=size)}

    def _gather_and_flatten(self, rows, flatten_level):
        return rows

    def _score_completions(self, samples):
        self._rewards_per_func = torch.tensor([sample.rewards for sample in samples])
        return samples

    def batch(self, *samples):
        """In ms-swift's order: scored, then logged, solutions only where every row has one."""
        self._score_completions(samples)
        self._logs["prompt"].extend(sample.prompt_id for sample in samples)
        self._logs["completion"].extend(sample.messages[-1]["content"] for sample in samples)
        if all("solution" in sample.extra for sample in samples):
            column = self._logs.setdefault("solution", deque(maxlen=self._logs["prompt"].maxlen))
            column.extend(sample.extra["solution"] for sample in samples)


class Trainer(Tasks, SwiftsTrainer):
    pass


def watched(name="vlrft_ocr", size=64):
    return Trainer([name], size)


def sample(task, reward=1.0, *, text="<think>t</think><answer>A</answer>", **extra):
    row = {"task": task, "solution": "A"} | extra
    return SimpleNamespace(
        extra={key: value for key, value in row.items() if value is not ...},
        messages=[{"role": "assistant", "content": text}],
        response_token_ids=[1, 2, 3],
        prompt_id="p",
        request_id=str(id(row)),
        rewards=[reward],
    )


def of(trainer, name, mode="train"):
    return {
        key.removeprefix("tasks/").rsplit("/", 1)[0]: values
        for key, values in trainer._metrics[mode].items()
        if key.endswith("/" + name)
    }


def test_images_that_share_a_prompt_are_groups_of_their_own():
    """ms-swift's prompt_id knows of the text alone; its advantages are of each image."""
    trainer = watched()
    tasks, rewards = ["ocr"] * 4 + ["list"] * 2, (1.0, 1.0, 0.0, 0.0, 1.0, 0.0)
    trainer.batch(*map(sample, tasks, rewards))
    assert of(trainer, "zero_variance") == {"ocr": [1.0], "list": [0.0]}


def test_trajectories_of_several_samples_count_once():
    trainer = watched()
    trainer.dynamic_num_samples = True
    first, second = sample("ocr"), sample("ocr")
    second.request_id = first.request_id
    trainer.batch(first, second, sample("ocr", 0.0), sample("list"))
    assert of(trainer, "zero_variance") == {"ocr": [0.0]} and of(trainer, "reward")["ocr"] == [0.5]
    assert of(trainer, "share") == {"ocr": [pytest.approx(2 / 3)], "list": [pytest.approx(1 / 3)]}


def test_shares_are_of_all_completions_of_every_batch():
    trainer = watched()
    trainer.batch(*map(sample, ("ocr", "list", None, None)))
    trainer.batch(*map(sample, ("ocr", "ocr")))
    assert of(trainer, "share") == {"ocr": [0.25, 1.0], "list": [0.25, 0.0]}
    assert of(trainer, "reward") == {"ocr": [1.0, 1.0], "list": [1.0]}


@pytest.mark.parametrize(
    "tasks",
    [
        *(["ocr", "ocr"], ["ocr", None], [None, None], ["", ""], ["ocr", ...]),
        [f"put {n} there" for n in range(MOST_TASKS + 1)],
        ["ocr", "x" * (LONGEST_NAME + 1)],
    ],
)
def test_no_figures_of_one_task_or_of_texts(tasks):
    trainer = watched()
    trainer.batch(*map(sample, tasks))
    assert not trainer._metrics["train"]


def test_an_evaluation_of_another_task_is_not_the_training_s():
    trainer = watched()
    trainer.model.training = False
    trainer.batch(sample("list"), sample("ocr"))
    trainer.model.training = True
    trainer.batch(sample("ocr"), sample("ocr"))
    assert not trainer._metrics["train"]
    assert of(trainer, "reward", "eval") == {"list": [1.0], "ocr": [1.0]}
    assert not of(trainer, "zero_variance", "eval")  # of one answer each


@pytest.mark.parametrize("task", ["a/b", "two words", "图", 7, ["x"], {"a": 1}, "[red]", "\n"])
def test_names_of_the_users_own(task):
    trainer = watched("my_reward")
    trainer.batch(sample(task, 0.5), sample("ocr", float("nan")))
    assert of(trainer, "reward") == {str(task): [0.5]}  # none scored the other
    assert of(trainer, "length") == {str(task): [3.0], "ocr": [3.0]}
    assert not of(trainer, "parse_rate")  # what a reward of somebody else reads is not known


class Unreadable(dict):
    def get(self, *_):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("messages", [{"content": object()}]), ("response_token_ids", 5), ("extra", Unreadable())],
)
def test_what_cannot_be_read_stops_no_process(attribute, value):
    trainer, bad = watched(), sample("ocr")
    setattr(bad, attribute, value)
    trainer.batch(sample("ocr"), sample("list"), bad)
    assert of(trainer, "reward")["list"] == [1.0]


@pytest.mark.parametrize("size", [4, 64])
def test_every_column_of_the_table_is_as_long_as_the_completions(size):
    """Of batches with and without a solution, aliases, a tolerance or a task, in any order."""
    trainer = watched(size=size)
    none = {"solution": ...}
    for batch in (
        [sample(None, text="none", **none), sample(None, text="none", **none)],
        [sample("ocr", text="1", aliases=["a"], solution="1"), sample("ocr", text="x", **none)],
        [sample("number", text="2", tolerance="0.1", solution="2"), sample(..., text="y", **none)],
        [sample(..., text="z", **none), sample(..., text="z", **none)],
        [sample("ocr", text=n, solution=n, aliases=a) for n, a in (("3", ...), ("4", []))],
    ):
        trainer.batch(*batch)
        columns = trainer._logs
        assert {len(column) for column in columns.values()} == {len(columns["completion"])}
        for text, solution in zip(
            columns["completion"], columns.get("solution", columns["completion"]), strict=True
        ):
            assert solution == (text if text.isdecimal() else None) or "solution" not in columns
