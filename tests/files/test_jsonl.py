"""One reader: the same file gives the same answer in `vlrft eval`, `vlrft score`, `vlrft report`,
whatever program has written or cut it.
"""

import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.files.jsonl import Broken, finite, json_lines

LINES = [
    json.dumps(
        {
            "completion": [f"<think>é</think><answer>{said}</answer>"] * 2,
            "solution": ["red"] * 2,
            "vlrft_classification": [1.0, 0.0],
            "step": ["1", "1"],
        },
        ensure_ascii=False,
    )
    for said in ("red", "blue", "red")
]
TEXT = "\n".join(LINES) + "\n"
HALF = LINES[0][:60]

READ = {
    "as it is": TEXT.encode(),
    "byte order mark": TEXT.encode("utf-8-sig"),
    "mark in the middle, of files that were joined": b"".join(
        (line + "\n").encode("utf-8-sig") for line in LINES
    ),
    "CRLF": TEXT.replace("\n", "\r\n").encode("utf-8-sig"),
    "blank lines": ("\n \t\n" + TEXT.replace("\n", "\n\r\n\n")).encode(),
    "no newline at the end": TEXT.rstrip().encode(),
    "half a line at the end": (TEXT + HALF).encode(),
    "half a line with a newline": (TEXT + HALF + "\n\n").encode("utf-8-sig"),
    "cut within a letter": TEXT.encode() + '{"completion": "é'.encode()[:-1],
}
REFUSED = {
    "UTF-16": (TEXT.encode("utf-16"), "c.jsonl is UTF-16"),
    "UTF-16 without a mark": (TEXT.encode("utf-16-le"), "c.jsonl is UTF-16"),
    "UTF-32": (TEXT.encode("utf-32"), "c.jsonl is UTF-32"),
    "Latin-1": (TEXT.encode("latin-1"), "c.jsonl, line 1: not UTF-8"),
    "half a line in the middle": (
        f"{LINES[0]}\n{HALF}{LINES[1]}\n{LINES[2]}\n".encode(),
        "c.jsonl, line 2: not JSON",
    ),
    "half a line alone": (HALF.encode(), "c.jsonl, line 1: not JSON"),
    "words at the end": ((TEXT + "Traceback\n").encode(), "c.jsonl, line 4: not JSON"),
    "a list of numbers": (b'{"completion": "x"}\n3\n', "line 2: '3' is no JSON object"),
    "a column of another length": (
        b'{"completion": ["a", "b"], "solution": ["x"]}\n',
        "2 completions, but another number in 'solution'",
    ),
}


@pytest.fixture
def three(tmp_path):
    """The three commands on one file of completions."""

    def run(content: bytes) -> dict[str, tuple[int, str]]:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (folder / "logging.jsonl").write_text('{"reward": 1, "global_step/max_steps": "1/1"}\n')
        file = folder / "completions.jsonl"
        file.write_bytes(content)
        named = tmp_path / "c.jsonl"
        named.write_bytes(content)
        made = {}
        for name, command in {
            "eval": ["eval", "--predictions", str(named), "--task", "classification"],
            "score": ["score", str(named), "--reward", "vlrft_classification"],
            "report": ["report", str(folder)],
        }.items():
            result = CliRunner().invoke(app, command)
            said = " ".join(result.output.split())
            if name == "report" and result.exit_code == 0:
                said = (folder / "report.html").read_text()
            made[name] = result.exit_code, said.replace("completions.jsonl", "c.jsonl")
        return made

    return run


@pytest.mark.parametrize("content", READ.values(), ids=READ)
def test_what_any_program_writes_is_read_by_all_three(three, content):
    done = three(content)
    assert {name: code for name, (code, _) in done.items()} == dict.fromkeys(done, 0), done
    assert "6 rows" in done["eval"][1] and "6 completions" in done["score"][1]
    assert "<p>6 completions" in done["report"][1]
    for _, said in done.values():
        assert ("half a line at the end" in said) == (not content.rstrip().endswith(b"}"))


@pytest.mark.parametrize(("content", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_by_all_three_in_the_same_words(three, content, words):
    said = set()
    for code, text in three(content).values():
        assert code == 2 and words in text
        said.add(re.sub(r"\S*c\.jsonl", "c.jsonl", text))
    assert len(said) == 1, said


def test_a_pipe_is_refused(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opening it would wait for a writer
    for command in (["eval", "--predictions"], ["score"]):
        result = CliRunner().invoke(app, [*command, str(pipe)])
        assert result.exit_code == 2 and "is a pipe" in result.output


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_gold_and_lists_of_boxes_with_a_mark_are_read(tmp_path, encoding, newline):
    row = {"image": "a.png", "problem": "Colour?", "solution": "red"}
    (tmp_path / "set.jsonl").write_bytes((json.dumps(row) + newline * 2).encode(encoding))
    said = {"id": "0", "completion": "<answer>red</answer>"}
    (tmp_path / "p.jsonl").write_bytes((json.dumps(said) + newline).encode(encoding))
    gold = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 9, "height": 9}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5]}],
        "categories": [{"id": 1, "name": "dog"}],
    }
    (tmp_path / "instances.json").write_bytes(json.dumps(gold).encode(encoding))
    boxes = [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "score": 0.5}]
    (tmp_path / "boxes.json").write_bytes((newline + json.dumps(boxes)).encode(encoding))
    for command in (
        [
            "--predictions",
            "p.jsonl",
            "--gold",
            "set.jsonl",
            "--join",
            "id",
            "--task",
            "classification",
        ],
        ["--predictions", "boxes.json", "--gold", "instances.json"],
    ):
        command = [str(tmp_path / c) if c.partition(".")[2] else c for c in command]
        result = CliRunner().invoke(app, ["eval", *command])
        assert result.exit_code == 0, result.output
        assert "1.000" in result.output


@given(st.binary(max_size=200))
def test_any_bytes_are_lines_or_one_error(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    file.write_bytes(content)
    try:
        found = list(json_lines(file))
    except ValueError as error:
        assert str(file) in str(error)
        return
    for number, value in found:
        assert not isinstance(value, Broken) or f"line {number}:" in value.problem


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1.0), ("2.5", 2.5), (True, None), (None, None), (10**400, None), ("1e999", None)]
    + [(float("nan"), None), ("x", None), ([1], None), ("9" * 5000, None)],
)
def test_numbers_of_a_file(value, number):
    assert finite(value) == number
