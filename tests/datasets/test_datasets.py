"""A ViRFT folder on disk: what is found in it, what is wrong with it, and the rows it becomes."""

import random
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.written_sets import write_set

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.opening import find_set, open_set, splits_of

EMPTY = "<answer>No Objects</answer>"


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({}, {}),
        ({"solution": ["<answer>rose</answer>", "tulip"]}, {}),
        ({"problem": ["a", " "]}, {1: "' '"}),
        ({"solution": ["<answer>[{'Position': [1, 2]}]</answer>", EMPTY]}, {0: "[1, 2]"}),
        ({"solution": [None, EMPTY]}, {0: "no solution"}),
        ({"solution": ["[254, 303, 254, 365]", EMPTY]}, {0: "box 1 of 1"}),
        ({"image": [{"bytes": b"", "path": None}] * 2}, {0: "known format", 1: "known format"}),
        # the column task decides row by row
        ({"solution": ["4", "[1, 2, 3, 4]"], "task": ["counting", "grounding"]}, {}),
        (
            {"solution": ["some", "rose"], "task": ["counting", "flower"]},
            {0: "(counting)", 1: "'flower'"},
        ),
        # a gold answer that no reward of its task pays in full
        ({"solution": ["A", "..."], "task": ["choice", "classification"]}, {1: "'...'"}),
        # boxes lie inside the box format, or the image
        ({"solution": ["[10, 20, 1400, 90]", "[1, 2, 9, 5]"]}, {0: "(10, 20, 1400, 90)"}),
        (
            {
                "problem": ["Where?"] * 2,
                "solution": ["[1, 2, 40, 20]", "[1, 2, 51, 5]"],
                "frame": ["pixels"] * 2,
            },
            {1: "the image of 40 x 20"},
        ),
        # stored in another format than the rows say
        (
            {
                "problem": ["Where?"] * 2,
                "solution": ["[303, 254, 365, 291]", "{'box_2d': [303, 254, 365, 291]}"],
                "frame": ["yx1000"] * 2,
            },
            {0: "box_2d"},
        ),
        (
            {
                "problem": ["Where?"] * 2,
                "solution": ["[254, 303, 291, 365]", "[0.254, 0.303, 1.0000001, 0.365]"],
                "frame": ["unit"] * 2,
            },
            {0: "unit (0 to 1)"},
        ),
        ({"frame": ["norm999"] * 2}, {0: "norm999", 1: "norm999"}),
    ],
)
def test_what_is_wrong_with_a_row_is_named(columns, named, tmp_path):
    report = check_set(write_set(tmp_path, 2, **columns))
    problems = {bad.place.row: bad.problem for bad in report.problems}
    assert problems.keys() == named.keys() and report.good == 2 - len(named)
    assert all(named[row] in problem for row, problem in problems.items()), problems
    assert " at 0x" not in str(problems)  # no address in memory


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
