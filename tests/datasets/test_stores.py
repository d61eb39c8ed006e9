"""Sets in a store, read through fsspec."""

from pathlib import Path

import fsspec
import pytest
from support.sharded_rows import write_shards

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.check import check_splits
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.syntax import Address, parse, path_of
from swift_vlrft.datasets.validate import RowRules


def test_any_store_of_fsspec(tmp_path):
    write_shards(tmp_path, 3, 4, broken={5})
    memory = fsspec.filesystem("memory")
    for name in ("of-fsspec", "table.parquet"):  # as Spark names its folders
        memory.put(str(tmp_path), f"/{name}", recursive=True)
        stored = open_set(f"memory://{name}")
        assert [file.name[:11] for file in stored.files] == [f"train-0000{n}" for n in range(3)]
        assert [record["number"] for _, record in stored.records()] == list(range(12))
        ((split, (rows, report)),) = check_splits(path_of(f"memory://{name}"), RowRules()).items()
        assert split == "train" and len(list(rows)) == 12 and report.good == 11
        (problem,) = report.problems
        assert str(problem).startswith(f"memory://{name}/train-00001-of-00003.parquet, row 1: ")
    one = open_set("memory://of-fsspec/train-00002-of-00003.parquet")
    assert [record["number"] for _, record in one.records()] == list(range(8, 12))


@pytest.mark.parametrize(
    ("address", "token"),
    [
        ("memory://none", "memory://none"),
        ("nosuchstore://bucket/set", "nosuchstore://bucket/set"),
        ("s3://key:secret@bucket/set", "credentials"),
        ("s3://bucket/set?secret_key=x", "credentials"),
    ],
)
def test_addresses_that_cannot_be_read(address, token):
    with pytest.raises(DataError, match=token) as error:
        open_set(address)
    assert "secret" not in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "name", "subsets", "count"),
    [
        ("s3://bucket/a/set", "s3://bucket/a/set", (), None),
        ("s3://bucket/a/set:pixels#9", "s3://bucket/a/set", ("pixels",), 9),
        ("gs://bucket/set: native/ocr", "gs://bucket/set", ("native", "ocr"), None),
        ("data/set:pixels", None, ("pixels",), None),
        ("hf::org/set", None, (), None),
        ("C:/data", None, ("", "data"), None),
    ],
)
def test_addresses(text, name, subsets, count):
    found = parse(text)
    assert (found.in_store, found.subsets, found.count) == (name is not None, subsets, count)
    if name:
        assert found.name == name == str(found.path) == str(path_of(Path(name)))
        assert str(found.path / "a.parquet") == f"{name}/a.parquet"
        assert isinstance(found.path.parent, Address)
