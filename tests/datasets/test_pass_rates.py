"""`vlrft data convert --keep --pass-rates`: rows chosen by how often a model is right."""

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.written_sets import data, png, rows_in, write_rows, write_set

RATES = st.one_of(st.none(), st.integers(0, 8).map(lambda n: n / 8))


def write(folder: Path, rates: list[float | None], *, column: bool = True) -> Path:
    """A set whose rows have these pass rates; a row's number is its ``weight``."""
    images = [{"bytes": png((n, 30, 30)), "path": None} for n in range(len(rates))]
    numbers = {"image": images, "weight": list(range(len(rates)))}
    rates = pa.array(rates, pa.float64()) if column else None
    return write_set(folder, len(images), "train-0.parquet", **numbers, pass_rate=rates)


def predictions(file: Path, source: Path, rates: list[float | None]) -> Path:
    """What `vlrft eval --samples 2` writes of the rows that have a rate."""
    images = [image["bytes"] for image in pq.read_table(source)["image"].to_pylist()]
    keys = [hashlib.sha256(image).hexdigest()[:16] for image in images]
    lines = [
        {"id": f"{n}/{k}", "sample": k, "completion": "", "row": n, "image_hash": keys[n]}
        | {"pass_rate": rate}
        for n, rate in enumerate(rates)
        if rate is not None
        for k in range(2)
    ]
    return write_rows(file, *lines)


def convert(*arguments: object) -> tuple[int, str]:
    done = data("convert", *arguments)
    return done.exit_code, " ".join(done.output.split())


def weights(folder: Path, split: str = "train") -> list[int]:
    return [row["weight"] for row in rows_in(folder, split)]


@pytest.mark.slow
@settings(max_examples=12)
@given(
    rates=st.lists(RATES, min_size=1, max_size=9),
    low=st.integers(0, 8),
    width=st.integers(0, 8),
    of_column=st.booleans(),
)
def test_rows_are_kept_by_their_rates(tmp_path_factory, rates, low, width, of_column):
    folder = tmp_path_factory.mktemp("rates")
    source = write(folder / "set", rates, column=of_column)
    more: list[object] = []
    if not of_column:
        more = ["--pass-rates", predictions(folder / "predictions.jsonl", source, rates)]
    known = [n for n, rate in enumerate(rates) if rate is not None]
    low, high = low / 8, min(1, (low + width) / 8)
    code, said = convert(source, folder / "kept", "--keep", f"{low}:{high}", *more)
    inside = [n for n in known if low <= rates[n] <= high]
    assert code == (0 if inside else 2), said
    if inside:
        assert weights(folder / "kept") == inside
        assert bool(len(known) < len(rates)) == ("without a pass rate, left out" in said)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--keep", "0.9:0.1"], "--keep 0.9:0.1: give LOW:HIGH"),
        (["--keep", "half"], "--keep half: give LOW:HIGH"),
        (["--keep", "0:1.5"], "--keep 0:1.5: give LOW:HIGH"),
        (["--pass-rates", "none.jsonl"], "--pass-rates needs --keep"),
        (["--keep", "0:1"], "has no column pass_rate"),
        (
            ["--keep", "0:1", "--pass-rates", "none.jsonl"],
            "--pass-rates: none.jsonl does not exist",
        ),
    ],
)
def test_an_option_that_cannot_be_followed_is_refused(tmp_path, monkeypatch, options, named):
    monkeypatch.chdir(tmp_path)
    code, said = convert(write(Path("set"), [0.5], column=False), "out", *options)
    assert code == 2 and named in said and not Path("out").exists()


@pytest.mark.parametrize(
    ("rates", "edit", "named"),
    [
        ([99.0], {}, "line 1: pass_rate is '99.0'"),
        ([0.5, -3], {}, "line 3: pass_rate is '-3'"),
        ([0.5, 0.25], {"image_hash": "00"}, "row 0 "),
        ([0.5, 0.25], {"pass_rate": None}, "line 1 lacks row, pass_rate or image_hash"),
        ([0.25, 1.0], {"row": 1}, "line 3: row 1 had another pass_rate or image_hash"),
        ([0.5, 0.25], {}, "2 rows outside --keep"),
    ],
)
def test_rates_of_another_set_or_of_no_samples_are_refused(rates, edit, named, tmp_path):
    source = write(tmp_path / "set", [0.5, 0.25], column=False)
    file = predictions(tmp_path / "predictions.jsonl", source, rates)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines[:2] if edit else []:  # the samples of row 0
        line |= edit
        if line["pass_rate"] is None:
            del line["pass_rate"]
    write_rows(file, *lines)
    code, said = convert(source, tmp_path / "out", "--keep", "0.9:1", "--pass-rates", file)
    assert code == 2 and named in said and not (tmp_path / "out").exists(), said


def test_rates_are_of_one_split(tmp_path):
    source = write(tmp_path / "set", [0.5, 1.0])
    (source / "train-0.parquet").rename(source / "test-0.parquet")
    write(source, [0.5])
    code, said = convert(source, tmp_path / "out", "--keep", "0:0.9")
    assert code == 2 and "--split" in said
    assert convert(source, tmp_path / "out", "--keep", "0:0.9", "--split", "test")[0] == 0
    assert weights(tmp_path / "out", "test") == [0]
