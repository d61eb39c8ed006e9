"""Sets with pass rates: filtered, and from easy to hard."""

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.written_sets import digests, png, row
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import writer
from swift_vlrft.datasets.pass_rates import Share, order_folder

RATES = st.one_of(st.none(), st.integers(0, 8).map(lambda n: n / 8))


def write(folder: Path, rates: list[float | None], **more: list) -> Path:
    """A set whose rows have these pass rates; a row's number is its ``weight``."""
    rows = [
        row(n, weight=n, pass_rate=rate, reward_mean=rate, reward_std=rate)
        | {name: values[n] for name, values in more.items()}
        for n, rate in enumerate(rates)
    ]
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-0.parquet")
    return folder


def run(*arguments: object):
    return CliRunner().invoke(app, ["data", "order", *map(str, arguments)])


def said(result) -> str:
    return " ".join(result.output.split())


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rates=st.lists(RATES, min_size=1, max_size=23), low=st.integers(0, 8), high=st.integers(0, 8)
)
def test_rows_are_in_order_and_whole(tmp_path_factory, monkeypatch, rates, low, high):
    monkeypatch.setattr(writer, "GROUP_ROWS", 4)
    folder = tmp_path_factory.mktemp("order")
    source = write(folder / "set", rates)
    written = order_folder(source, folder / "ordered")
    table = pq.read_table(folder / "ordered" / "data")
    # Python's own sort, which is stable, of what was written by pyarrow.
    expected = sorted(range(len(rates)), key=lambda n: math.inf if rates[n] is None else -rates[n])
    assert table["weight"].to_pylist() == expected and written.rows == len(rates)
    before = pq.read_table(source)
    for name in ("image", "problem", "solution", "pass_rate"):
        values = before[name].to_pylist()
        now = table[name].to_pylist()
        if name == "image":
            values, now = ([one["bytes"] for one in of] for of in (values, now))
        assert now == [values[n] for n in expected]
    low, high = sorted((low / 8, high / 8))
    kept = [n for n in expected if rates[n] is not None and low <= rates[n] <= high]
    if kept:
        order_folder(source, folder / "kept", keep=Share.of(f"{low}:{high}"))
        assert pq.read_table(folder / "kept" / "data")["weight"].to_pylist() == kept
    else:
        with pytest.raises(ValueError, match="holds none of the"):
            order_folder(source, folder / "kept", keep=Share.of(f"{low}:{high}"))
        assert not (folder / "kept").exists()


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.string()])
def test_both_ends_are_kept_of_any_type(tmp_path, kind):
    rates = [n / 10 for n in range(11)]
    source = write(tmp_path / "set", rates)
    table = pq.read_table(source)
    for name in ("pass_rate", "reward_mean"):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(kind))
    pq.write_table(table, source / "train-0.parquet")
    for low, high in ((0.1, 0.9), (0.3, 0.7), (0.6, 0.6), (0.7, 0.8), (1, 1), (0, 0)):
        out = tmp_path / f"{low}-{high}"
        order_folder(source, out, keep=Share.of(f"{low}:{high}"))
        kept = sorted(pq.read_table(out / "data")["weight"].to_pylist())
        assert kept == [n for n, rate in enumerate(rates) if low <= rate <= high]


def test_equal_pass_rates_are_ordered_by_the_mean_reward(tmp_path):
    source = write(tmp_path / "set", [0.5, 0.5, 0.5, 1.0], reward_mean=[0.4, 0.6, 0.5, 0.9])
    assert run(source, tmp_path / "out").exit_code == 0
    assert pq.read_table(tmp_path / "out" / "data")["weight"].to_pylist() == [3, 1, 2, 0]


def test_the_order_is_the_same_every_time_and_is_counted(tmp_path):
    source = write(tmp_path / "set", [0.2, None, 1.0, 0.0, float("nan")])
    first = run(source, tmp_path / "a" / "set", "--keep", "0.1:1", "--json")
    found = json.loads(first.stdout)
    assert found["rows"] == 2
    assert found["counts"] == {"rows without a pass rate": 2, "rows outside --keep 0.1:1": 1}
    run(source, tmp_path / "b" / "set", "--keep", "0.1:1")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert "2 rows without a pass rate, written last" in said(run(source, tmp_path / "c"))
    again = run(source, tmp_path / "c")
    assert again.exit_code == 2 and "is there already" in said(again)


def test_the_ordered_set_is_no_part_of_its_source(tmp_path):
    source = write(tmp_path / "set", [0.2, 1.0])
    (source / "folder").mkdir()
    (tmp_path / "link").symlink_to(source)
    for target in (source / "ordered", source / "folder" / "new", tmp_path / "link" / "ordered"):
        result = run(source, target)
        assert result.exit_code == 2 and "would become a part" in said(result)
        assert not target.exists()
    write(tmp_path / "several" / "a", [0.5])
    write(tmp_path / "several" / "b", [0.5])
    result = run(tmp_path / "several", tmp_path / "ordered")
    assert result.exit_code == 0 and "is read as one set" in said(result)


@pytest.mark.parametrize("text", ["", ":", "0.1", "0.1:", ":0.9", "a:b", "0.1-0.9", "0.1:0.2:0.3"])
def test_a_range_that_is_none(text):
    with pytest.raises(ValueError, match="two numbers are needed, such as 0.1:0.9"):
        Share.of(text)


@pytest.mark.parametrize("text", ["-0.1:0.5", "0.5:1.1", "10:90", "1:0", "0.2:0.1"])
def test_a_range_beyond_the_rates(text):
    with pytest.raises(ValueError, match=f"--keep {text}: .*(is more than|from 0 to 1)"):
        Share.of(text)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, "lacks the columns pass_rate and reward_mean"),
        ({"pass_rate": 0.5}, "lacks the column reward_mean"),
        ({"pass_rate": 1.5, "reward_mean": 0.5}, "the column pass_rate holds '1.5'"),
        ({"pass_rate": "high", "reward_mean": 0.5}, "the column pass_rate holds 'high'"),
        ({"pass_rate": 0.5, "reward_mean": -1}, "the column reward_mean holds '-1'"),
        ({"pass_rate": [0.5], "reward_mean": 1}, "the column pass_rate holds '[0.5]'"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path, columns, expected):
    (tmp_path / "a.png").write_bytes(png())
    line = {"image": "a.png", "problem": "Which?", "solution": "cat"} | columns
    (tmp_path / "set.jsonl").write_text(json.dumps(line) + "\n")
    result = run(tmp_path / "set.jsonl", tmp_path / "out")
    assert result.exit_code == 2 and expected in said(result)
    assert not (tmp_path / "out").exists()
    if "lacks" in expected:
        assert "`vlrft data difficulty MODEL" in said(result)
