"""Good sets with values and bytes changed at random: each record is a row or a bad row, read twice
the same, or one error of ours names the file; what is converted is read again.
"""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from support.stored_sets import GOLD, columns, picture, write_table

import swift_vlrft
from swift_vlrft.commands.output import printable
from swift_vlrft.datasets import BadRow, read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder

PACKAGE = str(Path(swift_vlrft.__file__).parent)
TURNS = [("human", "<image>Where is the lady?"), ("gpt", "[10, 3, 30, 18]")]
FORMS = {
    "virft": {"image": "0.png", "problem": "Detect dogs (0 to 1000).", "solution": GOLD},
    "rec": {"image": "0.png", "conversations": [{"from": w, "value": v} for w, v in TURNS]},
    "lisa": {"image_path": "0.png", "instruction": ["it"], "boxes": [[1.0, 2.0, 30.0, 18.0]]},
}
ODD = [
    *(None, True, -1, 2**64, 10**40, 1e308, float("nan"), float("-inf"), "", " ", "nan", "[]"),
    *("9" * 5000, "\u0301" * 300, [], {}, [[]], [None], {"": None}, [[[[[[]]]]]], ["\0"], "a\0b"),
    *({"path": None, "bytes": None}, {"bytes": "text"}, "/etc/passwd", "/dev/zero", "../../x", "."),
    *("data:image/png;base64,!!!", "a" * 300 + ".png", "\x1b[31m", "\u202e", "\ud800", "[red]"),
]
RAW = [b"\0", b"\xff", b"\xef\xbb\xbf", b"\n", b"{", b'"', b"\\ud800", b"1e999", b"[" * 3000]


def changed(rng, value):
    """Decoded JSON with one of its leaves, keys or levels changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        rest = {k: v for k, v in value.items() if k != key}
        chance = rng.random()
        if chance < 0.1:
            return rest | ({} if chance < 0.05 else {rng.choice("\x1ba"): value[key]})
        return value | {key: changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], *[changed(rng, value[at])] * rng.randint(0, 2), *value[at + 1 :]]
    if isinstance(value, int | float) and rng.random() < 0.5:
        return rng.choice([-value, value * 1000, value / 1000, str(value), [value]])
    return rng.choice([*ODD, [value], {"text": value}])


def damaged(rng, content):
    at = rng.randrange(len(content))
    return rng.choice([content[:at], content[:at] + rng.choice(RAW) + content[at + 1 :]])


def write(rng, folder):
    """The file, and how many records stand in it where that is certain."""
    form, count = rng.choice(list(FORMS)), rng.randint(1, 20)
    rows = [changed(rng, FORMS[form]) if rng.random() < 0.5 else FORMS[form] for _ in range(count)]
    file = folder / f"{form}.{rng.choice(['json', 'jsonl', 'jsonl', 'parquet'])}"
    if file.suffix == ".parquet":
        table = columns(count) | {"solution": [str(rng.choice([GOLD, *ODD])) for _ in rows]}
        table["solution"] = [s.encode("utf-8", "replace").decode() for s in table["solution"]]
        table["image"] = [rng.choice([i, {"bytes": damaged(rng, i["bytes"])}])
                          for i in table["image"]]  # fmt: skip
        write_table(file, pa.table(table).to_pylist())
        content, count = file.read_bytes(), None
    elif file.suffix == ".json":
        content, count = json.dumps(rows).encode(), None
    else:
        content = b"\n".join(json.dumps(row).encode() for row in rows)
        count = count if form != "lisa" else None  # whose record is a row for each sentence
    if rng.random() < 0.25:
        content, count = damaged(rng, content), None
    file.write_bytes(content)
    return file, count


def read(file):
    return list(read_rows(file, keep_going=True))


def assert_ours(error, place):
    """One that this package raises itself, that names the place and that a terminal may show."""
    frame = error.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert frame.tb_frame.f_code.co_filename.startswith(PACKAGE), repr(error)
    assert str(place) in str(error) and 10 < len(str(error)) < 3000, str(error)[:300]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(150))
def test_no_record_is_lost_and_no_library_is_heard(seed, tmp_path):
    rng = random.Random(seed)
    (tmp_path / "0.png").write_bytes(picture())
    file, count = write(rng, tmp_path)
    try:
        rows = read(file)
    except ValueError as error:
        return assert_ours(error, file)
    assert repr(read(file)) == repr(rows)  # NaN is not NaN
    bad = [row for row in rows if isinstance(row, BadRow)]
    assert all(len(row.problem) > 5 and printable(row).isprintable() for row in bad)
    assert count in (None, len(rows))
    report = check_set(file)
    assert report.good <= len(rows) - len(bad)
    if report.good:
        written = convert_folder(file, tmp_path / "out", keep_going=True)
        convert_folder(tmp_path / "out", tmp_path / "again")
        once, twice = (
            [repr((row.problem, row.solution, row.columns)) for row in read(tmp_path / name)]
            for name in ("out", "again")
        )
        assert once == twice and len(once) == written.rows
    return None
