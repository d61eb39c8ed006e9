"""`vlrft data convert --keep --order --pass-rates`: rows chosen by how often a model is right."""

import hashlib
import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.written_sets import row
from typer.testing import CliRunner

from swift_vlrft.cli import app

RATES = st.one_of(st.none(), st.integers(0, 8).map(lambda n: n / 8))


def write(folder: Path, rates: list[float | None], *, column: bool = True) -> Path:
    """A set whose rows have these pass rates; a row's number is its ``weight``."""
    rows = [row(n, weight=n) | ({"pass_rate": r} if column else {}) for n, r in enumerate(rates)]
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-0.parquet")
    return folder


def predictions(file: Path, source: Path, rates: list[float | None]) -> Path:
    """What `vlrft eval --samples 2` writes of the rows that have a rate."""
    images = [one["bytes"] for one in pq.read_table(source)["image"].to_pylist()]
    keys = [hashlib.sha256(image).hexdigest()[:16] for image in images]
    lines = [
        {"id": f"{n}/{k}", "sample": k, "completion": "", "row": n, "image_hash": keys[n]}
        | {"pass_rate": rate}
        for n, rate in enumerate(rates)
        if rate is not None
        for k in range(2)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def convert(*arguments: object):
    return CliRunner().invoke(app, ["data", "convert", *map(str, arguments)])


def weights(folder: Path) -> list[int]:
    return pq.read_table(folder / "data")["weight"].to_pylist()


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rates=st.lists(RATES, min_size=1, max_size=9),
    low=st.integers(0, 8),
    width=st.integers(0, 8),
    of_column=st.booleans(),
)
def test_rows_are_kept_and_ordered_by_their_rates(tmp_path_factory, rates, low, width, of_column):
    folder = tmp_path_factory.mktemp("rates")
    source = write(folder / "set", rates, column=of_column)
    more: list[object] = []
    if not of_column:
        more = ["--pass-rates", predictions(folder / "predictions.jsonl", source, rates)]
    done = convert(source, folder / "ordered", "--order", "pass_rate", *more)
    known = [n for n, rate in enumerate(rates) if rate is not None]
    if not known:  # a column of nulls, or a file without lines, which is refused
        assert done.exit_code == (0 if of_column else 2)
        return
    assert done.exit_code == 0, done.output
    expected = sorted(range(len(rates)), key=lambda n: math.inf if rates[n] is None else -rates[n])
    assert weights(folder / "ordered") == expected
    written = pq.read_table(folder / "ordered" / "data")["pass_rate"].to_pylist()
    assert written == [rates[n] for n in expected]
    low, high = low / 8, min(1, (low + width) / 8)
    done = convert(source, folder / "kept", "--keep", f"{low}:{high}", *more)
    inside = [n for n in known if low <= rates[n] <= high]
    assert done.exit_code == (0 if inside else 2), done.output
    if inside:
        assert weights(folder / "kept") == inside
        assert bool(len(known) < len(rates)) == ("without a pass rate, left out" in done.output)


@pytest.mark.parametrize(
    "options, said",
    [
        (["--keep", "0.9:0.1"], "--keep 0.9:0.1: not LOW:HIGH, two numbers from 0 to 1"),
        (["--keep", "half"], "--keep half: not LOW:HIGH"),
        (["--keep", "0:1.5"], "--keep 0:1.5: not LOW:HIGH"),
        (["--order", "hard"], "--order hard: unknown; known: pass_rate"),
        (["--keep", "0:1"], "has no column pass_rate: `vlrft eval MODEL"),
        (["--pass-rates", "none.jsonl"], "--pass-rates: none.jsonl does not exist (from"),
    ],
)
def test_an_option_that_cannot_be_followed_is_refused(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    done = convert(write(Path("set"), [0.5], column=False), "out", *options)
    assert done.exit_code == 2 and not Path("out").exists()
    assert said in " ".join(done.output.split())


def test_rates_of_another_set_or_of_no_samples_are_refused(tmp_path):
    source = write(tmp_path / "set", [0.5, 0.25], column=False)
    rows = pq.read_table(source).to_pylist()
    (other := tmp_path / "other").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[::-1]), other / "train-0.parquet")
    file = predictions(tmp_path / "predictions.jsonl", source, [0.5, 0.25])
    done = convert(other, tmp_path / "out", "--keep", "0:1", "--pass-rates", file)
    assert done.exit_code == 2 and "says of row 0 that its image has the hash" in done.output
    file.write_text('{"id": "0", "completion": "a", "row": 0}\n')
    done = convert(source, tmp_path / "out", "--keep", "0:1", "--pass-rates", file)
    assert done.exit_code == 2 and "line 1: no row, pass_rate and image_hash" in done.output
    for rates, said in [
        ([99.0], "line 1: pass_rate is '99.0', not from 0 to 1"),
        ([0.5, -3], "line 3: pass_rate is '-3', not from 0 to 1"),
        ([0.5, 1.0], "line 3: another pass_rate or image_hash for row 0 than before"),
        ([0.5, 0.25], "no row is left: 2 rows outside of --keep; give a wider --keep"),
    ]:
        predictions(file, source, rates)
        if "another" in said:
            file.write_text(file.read_text().replace('"row": 1', '"row": 0'))
        done = convert(source, tmp_path / "out", "--keep", "0.9:1", "--pass-rates", file)
        assert done.exit_code == 2 and said in " ".join(done.output.split()), done.output
    assert not (tmp_path / "out").exists()


def test_rates_are_of_one_split(tmp_path):
    source = write(tmp_path / "set", [0.5, 1.0])
    (source / "train-0.parquet").rename(source / "test-0.parquet")
    write(tmp_path / "more", [0.5])
    (tmp_path / "more" / "train-0.parquet").rename(source / "train-0.parquet")
    done = convert(source, tmp_path / "out", "--keep", "0:0.9")
    assert done.exit_code == 2 and "name it by --split" in done.output
    done = convert(source, tmp_path / "out", "--keep", "0:0.9", "--split", "test")
    assert done.exit_code == 0 and weights(tmp_path / "out") == [0]
