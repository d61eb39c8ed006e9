"""What ``--dataset`` names, beside ms-swift's own reading of it."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.swift_run import run_python

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.box_format import split_box_format
from swift_vlrft.datasets.syntax import parse

THERE = ("set", "a:b", "c#d", "e::f", "g#2")
PIECES = [*THERE, "org/set", "hf", "MS", "x", ":", ":", "::", "#", "#", "/", " ", "pixels", "0"]
PIECES += ["7", "-1", "1_0", "1.5", "ocr"]
ASKED = """
import json, sys
from swift.dataset.dataset_syntax import DatasetSyntax
found = []
for text in json.load(open(sys.argv[1])):
    try:
        one = DatasetSyntax.parse(text)
        found.append([one.dataset, one.subsets, one.dataset_sample, one.use_hf])
    except (TypeError, ValueError, AttributeError):
        found.append(None)
print(json.dumps(found))
"""


def test_all_texts_are_read_as_ms_swift_reads_them(tmp_path, monkeypatch):
    """But that what it ends on with a traceback is refused: no name, and no number of rows."""
    monkeypatch.chdir(tmp_path)
    for name in THERE:
        (tmp_path / name).mkdir()
    texts = set()

    @settings(max_examples=2000, deadline=None, database=None)
    @given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join))
    def collect(text):
        texts.add(text)

    collect()
    (tmp_path / "texts.json").write_text(json.dumps(asked := sorted(texts)))
    done = run_python(f"import os; os.chdir({os.fspath(tmp_path)!r})\n{ASKED}", "texts.json")
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    both = {"hf": True, "ms": False, None: None}
    read = 0
    for text, wanted in zip(asked, theirs, strict=True):
        try:
            ours = parse(text)
        except DataError:
            assert wanted is None or not wanted[0] or wanted[2] is not None and wanted[2] < 1, (
                text,
                wanted,
            )
            continue
        if not ours.in_store:
            read += 1
            found = [ours.name, list(ours.subsets), ours.count, both[ours.hub]]
            assert found == wanted, text
    assert read > 100


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("set", ("set", "norm1000")),
        ("set:pixels", ("set", "pixels")),
        ("a:b", ("a:b", "norm1000")),
        ("none:pixels", ("none", "pixels")),
        ("none:other", ("none:other", "norm1000")),
        ("set:pixel", "unknown subset 'pixel'; known: norm1000, pixels"),
        ("set:ocr", "here all rows of set are read; give PATH|set or set:FORMAT"),
        ("set#3", "here all rows of set are read"),
    ],
)
def test_commands_that_read_all_rows_take_a_box_format(tmp_path, monkeypatch, text, found):
    monkeypatch.chdir(tmp_path)
    for name in THERE:
        (tmp_path / name).mkdir()
    if isinstance(found, str):
        with pytest.raises(DataError, match=found):
            split_box_format(text)
    else:
        path, box_format = split_box_format(text)
        assert (str(path), box_format) == found
