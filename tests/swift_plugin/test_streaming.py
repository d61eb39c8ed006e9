"""Streams as ``datasets``, torch and ms-swift take them."""

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.plugin_run import import_plugin
from support.sharded_rows import write_shards

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


def test_a_stream_is_shuffled_counted_and_shared_among_workers(shards):
    code = (
        "import sys\n"
        "from swift.dataset import load_dataset\n"
        "from torch.utils.data import DataLoader\n"
        "def load(name, **how):\n"
        "    return load_dataset([name], streaming=True, **how)[0]\n"
        "def numbers(rows): return [row['number'] for row in rows]\n"
        "good = sorted(set(range(120)) - {7})\n"
        "name = sys.argv[2]\n"
        "assert numbers(load(name)) == good\n"
        "rows = load(name, shuffle=True, seed=3, shuffle_buffer_size=10)\n"
        "first, again = numbers(rows), numbers(rows)\n"
        "assert first == again != good and sorted(first) == good\n"
        "assert len({n // 20 for n in first[:10]}) < 4 and first[0] // 20 != 0\n"
        "rows.set_epoch(1)\n"
        "second = numbers(rows)\n"
        "assert sorted(second) == good and second != first\n"
        "assert sorted(numbers(DataLoader(rows, batch_size=None, num_workers=2))) == good\n"
        "assert numbers(load(name + '#9')) == good[:9]\n"
        "print('as said')"
    )
    done = import_plugin("--dataset", str(shards), then=code)
    assert done.returncode == 0 and "as said" in done.stdout, done.stderr[-3000:]
    assert "left out: " in done.stderr + done.stdout
    assert "train-00000-of-00006.parquet, row 7: " in done.stdout + done.stderr


def test_a_set_in_a_store(shards):
    """By fsspec; the plugin checks its first rows, and ms-swift loads it by its address."""
    code = (
        "import sys, fsspec\n"
        "from swift.dataset import load_dataset\n"
        f"fsspec.filesystem('memory').put({str(shards)!r}, '/set', recursive=True)\n"
        "sys.argv += ['--dataset', 'memory://set:classification#50', '--streaming', 'true']\n"
        "register()\n"
        "rows = load_dataset(['memory://set:classification#50'], streaming=True)[0]\n"
        "assert [r['number'] for r in rows] == [n for n in range(51) if n != 7]\n"
        "print('as said')"
    )
    done = import_plugin(then=code)
    assert done.returncode == 0 and "as said" in done.stdout, done.stderr[-3000:]
    assert "memory://set/train-00000-of-00006.parquet, row 7: " in done.stdout + done.stderr


def test_files_in_the_order_of_their_tasks(tmp_path):
    """The first one, read alone by a data worker, holds no row of the task."""
    rows = pq.read_table(write_shards(tmp_path, 2, 20, group=1) / "train-00001-of-00002.parquet")
    boxes = ['[{"Position": [1, 2, 9, 9], "Confidence": 1}]'] * 20
    for name, values in (("task", ["detection"] * 20), ("solution", boxes)):
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values))
    pq.write_table(rows, tmp_path / "train-00001-of-00002.parquet", row_group_size=1)
    code = (
        "import sys\n"
        "from swift.dataset import load_dataset\n"
        "from torch.utils.data import DataLoader\n"
        "rows = load_dataset([sys.argv[2]], streaming=True)[0]\n"
        "read = [r['number'] for r in DataLoader(rows, batch_size=None, num_workers=2)]\n"
        "assert sorted(read) == list(range(20, 40)), read\n"
        "print('as said')"
    )
    done = import_plugin("--dataset", f"{tmp_path}:detection/norm1000", then=code)
    assert done.returncode == 0 and "as said" in done.stdout, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("", "a stream has no length; --max_steps says how many train"),
        ("--max_steps -1", "a stream has no length; --max_steps says how many train"),
        ("--max_steps 9 --val_dataset SET", "GRPO needs the length of a validation set"),
        (
            "--max_steps 9 --num_generations 2 --generation_batch_size 242",
            "have 120 good rows, and a generation takes 121 prompts",
        ),
        ("--max_steps 9 --num_generations 2 --per_device_train_batch_size 240", None),
        ("--max_steps 9 --dataset s3://me:secret@bucket/set", "takes neither credentials"),
        ("--max_steps 9 --dataset nosuchstore://bucket/set", "nosuchstore"),
        ("--max_steps 9 --dataset memory://none", "memory://none"),
    ],
)
def test_what_a_stream_needs_is_said_before_a_model_is_loaded(shards, flags, says):
    words = ["--streaming", "true", "--rlhf_type", "grpo", *flags.split()]
    if "--dataset" not in words:
        words[:0] = ["--dataset", str(shards)]
    done = import_plugin(*[str(shards) if word == "SET" else word for word in words])
    assert done.returncode == (says is not None), done.stderr[-2000:]
    assert (says or "") in done.stderr and "Traceback" not in done.stderr
    assert "secret" not in done.stderr
