"""One reader: the same file gives the same answer in `vlrft eval`, `vlrft score`, `vlrft report`,
whatever program has written or cut it.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import vlrft

from swift_vlrft.files.jsonl import finite, json_lines

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
    "UTF-16": (TEXT.encode("utf-16"), "not UTF-8"),
    "UTF-16 without a mark": (TEXT.encode("utf-16-le"), "line 1: not UTF-8"),
    "Latin-1": (TEXT.encode("latin-1"), "line 1: not UTF-8"),
    "half a line in the middle": (f"{LINES[0]}\n{HALF}{LINES[1]}\n{LINES[2]}".encode(), "line 2:"),
    "half a line alone": (HALF.encode(), "line 1:"),
    "words at the end": ((TEXT + "Traceback\n").encode(), "line 4:"),
    "a list of numbers": (b'{"completion": "x"}\n3\n', "line 2: '3'"),
    "other length": (b'{"completion": ["a", "b"], "solution": ["x"]}\n', "'solution'"),
}


@pytest.fixture
def three(tmp_path):
    """Exit code and words of the three commands on one file of completions."""

    def run(content: bytes) -> dict[str, tuple[int, str]]:
        (tmp_path / "logging.jsonl").write_text('{"reward": 1, "global_step/max_steps": "1/1"}\n')
        file = tmp_path / "completions.jsonl"
        file.write_bytes(content)
        answers = {}
        for command in (
            ["eval", "--predictions", str(file), "--task", "classification"],
            ["score", str(file), "--reward", "vlrft_classification"],
            ["report", str(tmp_path)],
        ):
            result = vlrft(*command)
            answers[command[0]] = result.exit_code, " ".join(result.output.split())
        if answers["report"][0] == 0:
            answers["report"] = 0, (tmp_path / "report.html").read_text()
        return answers

    return run


@pytest.mark.slow
@pytest.mark.parametrize("content", READ.values(), ids=READ)
def test_what_any_program_writes_is_read_by_all_three(three, content):
    answers = three(content)
    assert {code for code, _ in answers.values()} == {0}, answers
    for (_, said), count in zip(
        answers.values(), ("6 rows", "6 completions", ">6 completions"), strict=True
    ):
        assert count in said
        assert ("half a line" in said) == (not content.rstrip().endswith(b"}"))


@pytest.mark.parametrize(("content", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_by_all_three_in_the_same_words(three, content, why):
    answers = set(three(content).values())
    assert len(answers) == 1, answers
    ((code, said),) = answers
    assert code == 2 and "completions.jsonl" in said and why in said


def test_a_pipe_is_refused(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opening it would wait for a writer
    for command in (["eval", "--predictions"], ["score"]):
        result = vlrft(*command, pipe)
        assert result.exit_code == 2 and str(pipe) in result.output.replace("\n", "")


def test_gold_and_lists_of_boxes_with_a_mark_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    box = {"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5]}
    gold = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 9, "height": 9}],
        "annotations": [box | {"id": 1}],
        "categories": [{"id": 1, "name": "dog"}],
    }
    for name, value, before, after in (
        ("set.jsonl", {"image": "a.png", "problem": "?", "solution": "red"}, "", "\r\n\r\n"),
        ("p.jsonl", {"id": "0", "completion": "<answer>red</answer>"}, "", "\r\n"),
        ("instances.json", gold, "", ""),
        ("boxes.json", [box | {"score": 0.5}], "\r\n", ""),
    ):
        Path(name).write_bytes((before + json.dumps(value) + after).encode("utf-8-sig"))
    for command in (
        "--predictions p.jsonl --gold set.jsonl --join id --task classification",
        "--predictions boxes.json --gold instances.json",
    ):
        result = vlrft("eval", *command.split())
        assert result.exit_code == 0 and "1.000" in result.output, result.output


@given(st.binary(max_size=200))
def test_any_bytes_are_lines_or_one_error(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    file.write_bytes(content)
    try:
        values = list(json_lines(file))
    except ValueError as error:
        assert str(file) in str(error)
        return
    assert all(number > 0 for number, _ in values)


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1.0), ("2.5", 2.5), (True, None), (None, None), (10**400, None), ("1e999", None)]
    + [(float("nan"), None), ("x", None), ([1], None), ("9" * 5000, None)],
)
def test_numbers_of_a_file(value, number):
    assert finite(value) == number
