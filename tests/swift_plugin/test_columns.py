"""What training keeps of each row, beside a trainer that gathers and keeps as ms-swift's.

The rows of both processes are handed in as one list, as `_gather_and_flatten` returns them.
"""

from collections import deque
from types import SimpleNamespace

import pytest

from swift_vlrft.swift_plugin.columns import Columns

pytestmark = pytest.mark.slow  # ms-swift is imported


class SwiftsTrainer:
    """The parts of ms-swift 4.6's GRPO trainer that are read or written."""

    def __init__(self, size):
        self._logs = {"prompt": deque(maxlen=size), "completion": deque(maxlen=size)}

    def _gather_and_flatten(self, rows, flatten_level):
        return rows

    def _score_completions(self, samples):
        return samples

    def batch(self, *samples):
        """In ms-swift's order: scored, then logged, solutions only where every row has one."""
        self._score_completions(samples)
        self._logs["prompt"].extend("p" for _ in samples)
        self._logs["completion"].extend(sample.text for sample in samples)
        if all("solution" in sample.extra for sample in samples):
            column = self._logs.setdefault("solution", deque(maxlen=self._logs["prompt"].maxlen))
            column.extend(sample.extra["solution"] for sample in samples)


class Trainer(Columns, SwiftsTrainer):
    pass


def sample(task, *, text, **extra):
    row = {"task": task, "solution": "A"} | extra
    kept = {key: value for key, value in row.items() if value is not ...}
    return SimpleNamespace(extra=kept, text=text)


@pytest.mark.parametrize("size", [4, 64])
def test_every_column_of_the_table_is_as_long_as_the_completions(size):
    """Of batches with and without a solution, aliases, a tolerance or a task, in any order."""
    trainer = Trainer(size)
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
