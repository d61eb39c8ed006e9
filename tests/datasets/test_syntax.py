"""What ``--dataset`` names, beside ms-swift's own reading of it."""

import json
import os
import random

import pytest
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
answers = []
for text in json.load(open(sys.argv[1])):
    try:
        read = DatasetSyntax.parse(text)
        answers.append([read.dataset, read.subsets, read.dataset_sample, read.use_hf])
    except (TypeError, ValueError, AttributeError):
        answers.append(None)
print(json.dumps(answers))
"""


@pytest.fixture(autouse=True)
def sets_that_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in THERE:
        (tmp_path / name).mkdir()


@pytest.mark.slow
def test_all_texts_are_read_as_ms_swift_reads_them(tmp_path):
    """But that what it ends on with a traceback is refused: no name, and no number of rows."""
    rng = random.Random(0)
    texts = sorted({"".join(rng.choices(PIECES, k=rng.randint(1, 7))) for _ in range(1500)})
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    done = run_python(f"import os; os.chdir({os.fspath(tmp_path)!r})\n{ASKED}", "texts.json")
    assert done.returncode == 0, done.stderr[-2000:]
    hubs = {"hf": True, "ms": False, None: None}
    read = 0
    for text, theirs in zip(texts, json.loads(done.stdout.splitlines()[-1]), strict=True):
        try:
            ours = parse(text)
        except DataError:
            name, _, count, _ = theirs or ("", [], None, None)
            assert "://" in text or not name or count is not None and count < 1, (text, theirs)
            continue
        read += 1
        read_as = [ours.name, list(ours.subsets), ours.count, hubs[ours.hub]]
        assert read_as == theirs, text
    assert read > 100


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("set", ("set", "norm1000")),
        ("set:pixels", ("set", "pixels")),
        ("a:b", ("a:b", "norm1000")),
        ("none:pixels", ("none", "pixels")),
        ("none:other", ("none:other", "norm1000")),
        ("set:pixel", "'pixel'; known: norm1000, pixels"),
        ("set:ocr", "'ocr'; known: norm1000, pixels"),
    ],
)
def test_commands_that_read_all_rows_take_a_box_format(text, asked):
    if isinstance(asked, str):
        with pytest.raises(DataError, match=asked):
            split_box_format(text)
    else:
        path, box_format = split_box_format(text)
        assert (str(path), box_format) == asked
