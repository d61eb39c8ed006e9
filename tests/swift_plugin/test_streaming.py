"""Streams as ``datasets``, torch and ms-swift take them."""

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.plugin_run import answer_of
from support.sharded_rows import write_shards

pytestmark = pytest.mark.slow  # ms-swift is imported

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("streamed") / "set", 6, 20, broken={7})


class Numbers:
    """A stream of numbers, as many as there are rows in a set."""

    def __init__(self, rows: int) -> None:
        self.rows, self.epochs = rows, []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[dict]:
        return iter([{"number": n} for n in range(self.rows)])


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("rows", "copies", "prompts", "repeats"),
    [(120, 4, 2, 1), (23, 2, 7, 3), (7, 2, 1, 1), (8, 8, 8, 2)],
)
def test_groups_are_those_of_the_usual_sampler(rows, copies, prompts, repeats, processes):
    """In every process, where no order is drawn; and then from the first row on again."""
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler, DataLoader
    from trl.trainer.utils import RepeatSampler

    from swift_vlrft.swift_plugin.streaming import RepeatedRows

    size = copies * prompts // processes
    sampler = RepeatSampler(range(rows), copies, prompts, repeats, shuffle=False)
    usual = BatchSampler(sampler, size, drop_last=False)
    ours = RepeatedRows(Numbers(rows), copies=copies, prompts=prompts, repeats=repeats)
    loader = DataLoader(
        ours, batch_size=size, collate_fn=lambda batch: [r["number"] for r in batch]
    )
    first = list(islice(loader, 2 * len(usual)))
    assert first[: len(usual)] == first[len(usual) :] == list(usual)
    for process in range(processes):  # ms-swift's dispatcher gives each the next batch
        wanted = list(BatchSamplerShard(usual, processes, process))
        assert first[process : len(usual) : processes] == wanted


def test_every_pass_is_shuffled_anew_and_copies_are_no_aliases():
    from swift_vlrft.swift_plugin.streaming import RepeatedRows

    numbers = Numbers(3)
    rows = RepeatedRows(numbers, copies=2, prompts=1, repeats=1, epoch=5)
    found = list(islice(rows, 7))
    assert numbers.epochs == [5, 6] and found[0] == found[1] and found[0] is not found[1]
    with pytest.raises(ValueError, match="have 3 good rows, and a generation takes 4 prompts"):
        next(iter(RepeatedRows(Numbers(3), copies=1, prompts=4, repeats=1)))


LOAD = """
from swift.dataset import load_dataset
from torch.utils.data import DataLoader
def load(name, **how):
    return load_dataset([name], streaming=True, **how)[0]
def numbers(rows):
    return [row["number"] for row in rows]
def by_two_workers(rows):
    return sorted(numbers(DataLoader(rows, batch_size=None, num_workers=2)))
"""


def test_a_stream_is_shuffled_counted_and_shared_among_workers(shards):
    then = """
rows = load(sys.argv[2], shuffle=True, seed=3, shuffle_buffer_size=10)
shuffled = [numbers(rows), numbers(rows)]
rows.set_epoch(1)
shuffled.append(numbers(rows))
print(json.dumps([numbers(load(sys.argv[2])), shuffled, by_two_workers(rows),
    numbers(load(sys.argv[2] + "#9"))]))
"""
    (plain, shuffled, shared, nine), said = answer_of("--dataset", str(shards), then=LOAD + then)
    good = [n for n in range(120) if n != 7]
    first, again, later = shuffled
    assert plain == shared == sorted(first) == sorted(later) == good and nine == good[:9]
    assert first == again != good and later != first
    assert len({n // 20 for n in first[:10]}) < 4 and first[0] // 20 != 0  # files, then rows
    assert "train-00000-of-00006.parquet, row 7: " in said


def test_a_set_in_a_store(shards):
    """By fsspec; the plugin checks its first rows, and ms-swift loads it by its address."""
    then = """
import fsspec
fsspec.filesystem("memory").put(sys.argv[1], "/set", recursive=True)
name = "memory://set:classification#50"
sys.argv[1:] = ["--dataset", name, "--streaming", "true"]
register()
print(json.dumps(numbers(load(name))))
"""
    rows, said = answer_of(str(shards), then=LOAD + then)
    assert rows == [n for n in range(51) if n != 7]
    assert "memory://set/train-00000-of-00006.parquet, row 7: " in said


def test_files_in_the_order_of_their_tasks(tmp_path):
    """The first one, read alone by a data worker, holds no row of the task."""
    file = write_shards(tmp_path, 2, 20, group=1) / "train-00001-of-00002.parquet"
    rows = pq.read_table(file)
    boxes = ['[{"Position": [1, 2, 900, 900], "Confidence": 1}]'] * 20
    for name, values in (("task", ["detection"] * 20), ("solution", boxes)):
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values))
    pq.write_table(rows, file, row_group_size=1)
    then = "print(json.dumps(by_two_workers(load(sys.argv[2]))))"
    flags = ("--dataset", f"{tmp_path}:detection/norm1000")
    assert answer_of(*flags, then=LOAD + then)[0] == list(range(20, 40))
