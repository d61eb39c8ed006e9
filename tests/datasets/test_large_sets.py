"""Sets larger than memory and disk: every row once, from the middle, broken ones, and memory."""

import math
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sharded_rows import write_shards

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.sharded_set import ShardedSet, Teller
from swift_vlrft.datasets.shards import Shards
from swift_vlrft.datasets.training import LoadOptions

OPTIONS = LoadOptions(cache=Path("unused"))


class Footers:
    """What ``Shards`` asks of a set that nobody wrote."""

    path, names = Path("set"), ["number"]

    def __init__(self, groups):
        self.files = [Path(f"{n}.parquet") for n in range(len(groups))]
        self.groups = groups


FILES = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 10**6, 10**9])), max_size=6),
    min_size=1,
    max_size=12,
).filter(lambda files: any(rows for file in files for rows, _ in file))


@settings(max_examples=60)
@given(FILES, st.integers(0, 99), st.booleans(), st.data())
def test_every_row_comes_once_and_from_anywhere(groups, seed, shuffle, data):
    shards = Shards(Footers(groups))
    whole = np.concatenate(list(shards.order(seed, shuffle=shuffle)))
    assert sorted(whole) == list(range(sum(n for file in groups for n, _ in file)))
    start = data.draw(st.integers(0, len(whole)))
    rest = list(shards.order(seed, start, shuffle=shuffle))
    assert [*map(int, np.concatenate([[], *rest]))] == whole[start:].tolist()
    parts = [list(shards.order(seed, shuffle=shuffle, part=(i, 3))) for i in range(3)]
    assert sorted(np.concatenate([np.concatenate([[], *p]) for p in parts])) == sorted(whole)
    assert shuffle or whole.tolist() == sorted(whole)
    # Places are those of the files.
    starts = np.cumsum([0, *(sum(n for n, _ in file) for file in groups)])
    for row in data.draw(st.lists(st.sampled_from(whole.tolist()), max_size=5)):
        place = shards.place(row)
        assert starts[int(place.file.stem)] + place.row == row


def test_rows_of_many_files_are_shuffled_together(tmp_path):
    data = ShardedSet(open_set(write_shards(tmp_path, 12, 10)), OPTIONS, print)
    first = next(data.shards.order([7, 0]))
    assert len({data.shards.place(int(n)).file for n in first}) > 6
    again = next(data.shards.order([7, 1]))
    assert first.tolist() != again.tolist()


@pytest.mark.parametrize("rows", [0, 5, 19])
def test_a_shard_that_is_rewritten_while_it_is_streamed(rows, tmp_path):
    """Its new rows are not those that the numbers stand for."""
    write_shards(tmp_path / "set", 2, 20)
    said: list[str] = []
    data = ShardedSet(open_set(tmp_path / "set"), OPTIONS, said.append)
    other = write_shards(tmp_path / "other", 4, 20) / "train-00003-of-00004.parquet"
    second = tmp_path / "set" / "train-00001-of-00002.parquet"
    pq.write_table(pq.read_table(other)[:rows], second)
    assert {data[n]["number"] for n in range(20, 40)} <= set(range(20))
    assert "train-00001-of-00002.parquet was rewritten after this run had begun" in said[0]


def test_a_number_is_the_same_row_for_every_process(tmp_path):
    """A broken row, a block that cannot be decoded, a file that is none: another row, told once."""
    write_shards(tmp_path, 4, 20, broken={3, 4, 70})
    file = tmp_path / "train-00001-of-00004.parquet"
    group = pq.read_metadata(file).row_group(1).column(0)
    content = bytearray(file.read_bytes())
    at = group.dictionary_page_offset or group.data_page_offset
    content[at : at + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    file.write_bytes(content)  # rows 25 to 29
    (tmp_path / "train-00002-of-00004.parquet").write_bytes(b"PAR1 cut off")
    told = []

    def process():
        stored = open_set(tmp_path, keep_going=True)
        return ShardedSet(stored, OPTIONS, told.append)

    one, other = process(), process()
    assert len(one) == 60
    numbers = list(range(60))
    rows = [row["number"] for row in one.__getitems__(numbers)]
    assert rows == [other[n]["number"] for n in reversed(numbers)][::-1]
    good = set(range(80)) - {3, 4, 70} - set(range(25, 30)) - set(range(40, 60))
    assert set(rows) == good and [one[n]["number"] for n in numbers] == rows
    assert rows[:3] == [0, 1, 2] and one[0]["images"][0]["bytes"].startswith(b"\x89PNG")
    text = "\n".join(told)
    for shard, row in ((0, 3), (0, 4), (1, 5), (3, 10)):
        assert text.count(f"train-0000{shard}-of-00004.parquet, row {row}: ") == 2, (shard, row)


def test_a_worker_that_is_not_forked_gets_the_set(tmp_path):
    data = ShardedSet(open_set(write_shards(tmp_path, 2, 10)), OPTIONS, print)
    first = data[3]
    assert pickle.loads(pickle.dumps(data))[3] == first == data[3]


def test_a_set_without_a_good_row_ends(tmp_path):
    write_shards(tmp_path, 1, 12, broken=range(12))
    data = ShardedSet(open_set(tmp_path), OPTIONS, lambda text: None)
    with pytest.raises(DataError, match="rows one after the other cannot be trained on"):
        data[5]


def test_warnings_are_few(tmp_path):
    said = []
    tell = Teller("set", said.append)
    for row in range(100_000):
        tell(BadRow(RowLocation(Path("a.parquet"), row), "broken"))
        tell(BadRow(RowLocation(Path("a.parquet"), min(row, 5)), "broken"))
    assert len(said) <= tell.shown + math.log2(100_000)
    assert "a.parquet, row 0: broken" in said[0] and "65536 bad rows so far" in said[-1]


def test_a_row_reads_its_row_group_alone(tmp_path):
    """In the middle of a set nothing is read of what comes before."""
    write_shards(tmp_path, 10, 100, group=10)
    shards = Shards(open_set(tmp_path))
    for window in shards.order(3, 500):
        for number in window:
            shards.read(int(number), ["image", "number"])
    half = shards.bytes_read
    whole = Shards(open_set(tmp_path))
    for window in whole.order(3):
        for number in window:
            assert whole.read(int(number), ["image", "number"])["number"] == number
    # A window of 16 row groups may be begun in its middle.
    assert 0.4 < half / whole.bytes_read < 0.7


@pytest.mark.parametrize("parts", [1, 4])
def test_a_row_group_of_any_size(tmp_path, monkeypatch, parts):
    """One that is too large for memory is read in parts."""
    write_shards(tmp_path, 2, 50, group=50)
    size = max(groups[0][1] for groups in open_set(tmp_path).groups)
    monkeypatch.setattr("swift_vlrft.datasets.shards.WINDOW_BYTES", 4 * -(-size // parts))
    shards = Shards(open_set(tmp_path))
    assert len(shards.blocks) == 2 * parts
    found = [shards.read(n, ["number"])["number"] for n in range(100)]
    assert found == list(range(100))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_set(tmp_path):
    """20,000 rows in 40 shards and an eighth of them: the same peak, within 60 MiB."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from swift_vlrft.datasets.opening import open_set\n"
        "from swift_vlrft.datasets.sharded_set import ShardedSet\n"
        "from swift_vlrft.datasets.training import LoadOptions\n"
        "data = ShardedSet(open_set(sys.argv[1]), LoadOptions(cache=Path('x')), print)\n"
        "seen = set()\n"
        "for window in data.shards.order(1):\n"
        "    for at in range(0, len(window), 64):\n"
        "        rows = data.__getitems__(window[at:at + 64].tolist())\n"
        "        seen |= {row['number'] for row in rows}\n"
        "assert len(seen) == len(data)\n"
        # Not ru_maxrss: it begins with that of the process that started this one.
        "status = Path('/proc/self/status').read_text()\n"
        "print(int(status.split('VmHWM:')[1].split()[0]) // 1024)\n"
    )
    write_shards(tmp_path / "large", 40, 500, group=50)
    write_shards(tmp_path / "small", 5, 500, group=50)
    peaks = {}
    for name in ("small", "large"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / name)],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30)),
        )
        assert done.returncode == 0, done.stderr[-2000:]
        peaks[name] = int(done.stdout.splitlines()[-1])
    assert peaks["large"] < 1024 and peaks["large"] - peaks["small"] < 60, peaks
