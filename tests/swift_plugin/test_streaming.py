"""Streams as ``datasets``, torch and ms-swift take them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.plugin_run import import_plugin
from support.sharded_rows import write_shards

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("streamed") / "set", 6, 20, broken={7})


LOADED = """
from swift.dataset import load_dataset
from torch.utils.data import DataLoader
rows = load_dataset([sys.argv[2]], streaming=True, shuffle=True, seed=3)[0]
"""


def test_a_stream_goes_on_in_the_middle(shards):
    code = LOADED + (
        "first = iter(rows)\n"
        "seen = [next(first)['number'] for _ in range(50)]\n"
        "state = rows.state_dict()\n"
        "rest = [row['number'] for row in first]\n"
        "assert sorted(seen + rest) == sorted(set(range(120)) - {7})\n"
        "assert seen + rest != sorted(seen + rest)\n"
        "rows.load_state_dict(state)\n"
        "assert [row['number'] for row in rows] == rest\n"
        "rows = load_dataset([sys.argv[2]], streaming=True, shuffle=True, seed=3)[0]\n"
        "rows.set_epoch(1)\n"
        "second = [row['number'] for row in rows]\n"
        "assert sorted(second) == sorted(seen + rest) and second != seen + rest\n"
        "two = [r['number'] for r in DataLoader(rows, batch_size=None, num_workers=2)]\n"
        "assert sorted(two) == sorted(second)\n"
        "print('as said')"
    )
    done = import_plugin(
        "--dataset", str(shards), "--streaming", "true", then=f"import sys\n{code}"
    )
    assert done.returncode == 0 and "as said" in done.stdout, done.stderr[-3000:]
    assert "train-00000-of-00006.parquet, row 7: " in done.stdout + done.stderr


def test_groups_are_those_of_the_usual_sampler(shards):
    """Unshuffled, what TRL's sampler gives; shuffled, another order of the same form."""
    code = LOADED + (
        "from trl.trainer.utils import RepeatSampler\n"
        "from swift_vlrft.swift_plugin.streamed_groups import GroupSampler\n"
        "for copies, number, repeats in ((4, 2, 1), (2, 7, 3), (1, 1, 1), (8, 120, 2)):\n"
        "    usual = RepeatSampler(range(len(rows)), copies, number, repeats, shuffle=False)\n"
        "    ours = dict(copies=copies, rows=number, repeats=repeats, seed=1)\n"
        "    plain = GroupSampler(rows, shuffle=False, **ours)\n"
        "    assert list(plain) == list(usual) and len(plain) == len(usual)\n"
        "    mixed = GroupSampler(rows, shuffle=True, **ours)\n"
        "    assert len(list(mixed)) == len(mixed)\n"
        "    if copies == 4: assert sorted(mixed) == sorted(usual) and list(mixed) != list(usual)\n"
        "try: GroupSampler(rows, shuffle=False, copies=8, rows=121, repeats=1, seed=1)\n"
        "except ValueError as error: assert 'not one step would be trained' in str(error)\n"
        "else: assert False\n"
        "assert len(rows) == 120 and rows[7]['number'] == 8 and rows[7]['dataset']\n"
        "print('as said')"
    )
    flags = ("--streaming", "true", "--rlhf_type", "grpo")
    done = import_plugin("--dataset", str(shards), *flags, then=f"import sys\n{code}")
    assert done.returncode == 0 and "as said" in done.stdout, done.stderr[-3000:]


def test_a_worker_whose_part_has_no_row_of_a_task(tmp_path):
    """Files in the order of their tasks, read as they lie: the first window is of the other one."""
    rows = pq.read_table(write_shards(tmp_path, 2, 20, group=1) / "train-00001-of-00002.parquet")
    boxes = ['[{"Position": [1, 2, 9, 9], "Confidence": 1}]'] * 20
    for name, values in (("task", ["detection"] * 20), ("solution", boxes)):
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values))
    pq.write_table(rows, tmp_path / "train-00001-of-00002.parquet", row_group_size=1)
    code = (
        "from swift.dataset import load_dataset\n"
        "from torch.utils.data import DataLoader\n"
        "rows = load_dataset([sys.argv[2]], streaming=True, shuffle=False)[0]\n"
        "read = [r['number'] for r in DataLoader(rows, batch_size=None, num_workers=3)]\n"
        "assert sorted(read) == list(range(20, 40)), read\n"
        "print('as said')"
    )
    done = import_plugin(
        *("--dataset", f"{tmp_path}:detection/norm1000", "--streaming", "true"),
        then=f"import sys\n{code}",
    )
    assert done.returncode == 0 and "as said" in done.stdout, done.stderr[-3000:]
