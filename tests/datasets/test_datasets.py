"""A ViRFT folder on disk: what is found in it, and how it is read."""

import random
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.written_sets import write_set

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.opening import find_set, open_set, splits_of


def test_shards_with_other_columns_are_refused(tmp_path):
    write_set(tmp_path, 2, "a.parquet")
    write_set(tmp_path, 2, "b.parquet", solution=None)
    with pytest.raises(DataError, match="b.parquet: it has other .*its columns are image, problem"):
        open_set(tmp_path)


def test_where_a_folder_lies_hides_none_of_its_files(tmp_path, monkeypatch):
    folder = write_set(tmp_path / ".cache" / "set", 1, "train-0.parquet")
    write_set(folder / ".half", 1, "test-0.parquet")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for path in (folder, Path("../.cache/set")):
        assert [file.name for file in find_set(path).files] == ["train-0.parquet"]
        assert splits_of(path) == ["train"]


def test_photographs_of_parquet_are_read_a_few_at_a_time(tmp_path):
    noise = random.Random(0).randbytes(10_000)
    images = [{"bytes": noise[i:] + noise[:i], "path": None} for i in range(1200)]
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": images}), file, row_group_size=100)
    del images
    stored = ColumnFiles(file, kind="Parquet")
    tracemalloc.start()
    try:
        stored.add(file)
        rows = sum(1 for _ in stored.records())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 1200 and peak < 5e6  # of 12 MB
