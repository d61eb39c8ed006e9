"""What a model or a stranger's file says is shown by every command, and never done."""

# ruff: noqa: E501 - rows of a table stay on one line

import ast
import json
import traceback
from pathlib import Path

import pytest
from support.stored_sets import GOLD, PROBLEM, picture
from typer.testing import CliRunner

import swift_vlrft
from swift_vlrft.cli import app
from swift_vlrft.datasets import DataError, read_rows
from swift_vlrft.files.text import visible
from swift_vlrft.report.html import render

COMMANDS = Path(swift_vlrft.__file__).parent / "commands"
EVIL = [
    "\x1b[31mred\x1b]8;;http://a.b\x1b\\x", "\x1b]52;c;cm0=\x07", "\x9b2J\x9d52;c;x\x9c", "\x07\x08\r\x7f",
    "\u202egnp.exe\u2066", "\ud800", "[red]x[/red] [/] [link=http://a.b]y", ":boom:", "\u2028\x85",
    "<script>alert(1)</script>", "=1+1",
]  # fmt: skip
PRINTS = {"plugin.py", "recipe.py", "output.py"}
"""plugin and recipe print a path of this package for $(...), which is not changed."""


def test_no_command_prints_but_through_one_file():
    for file in COMMANDS.glob("*.py"):
        calls = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]
        names = {ast.unparse(call.func) for call in calls}
        if file.name not in PRINTS:
            assert not names & {"print", "typer.echo", "typer.secho", "click.echo"}, file.name


def safe(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    odd = {c for c in result.output if not c.isprintable() and c != "\n"}
    assert not odd, (arguments, odd)
    return result.output


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_what_a_model_or_a_file_says_is_shown_and_not_done(text, tmp_path):
    answer = f"<think>t</think><answer>{text}</answer>"
    row = {"id": text, "completion": answer, "solution": "dog", "task": "classification"}
    row |= {"vlrft_classification": 0, "category": text, "image_id": text}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"id": "2"}))
    (tmp_path / "b.jsonl").write_text(json.dumps(row | {"completion": "<answer>dog</answer>"}))
    (tmp_path / "bad.jsonl").write_text(json.dumps({text: 1}))
    said = safe("score", tmp_path / "a.jsonl", "--show", 3)
    if "[" in text:
        assert "[red]" in said or "\\x1b[31m" in said or "\\x1b]" in said or "\\x9b" in said
    for more in ([], ["--json"]):
        safe("score", tmp_path / "a.jsonl", *more)
        safe("score", tmp_path / "bad.jsonl", *more)
        safe("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", *more)
    (tmp_path / "0.png").write_bytes(picture())
    rows = [
        {"image": "0.png", "problem": PROBLEM, "solution": GOLD} | change
        for change in ({}, {"image": f"{text}.png"}, {"task": text}, {"solution": text})
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    safe("data", "check", tmp_path / "rows.jsonl")
    safe("data", "check", tmp_path / "rows.jsonl", "--json")
    safe("data", "convert", tmp_path / "rows.jsonl", tmp_path / "out", "--keep-going")
    safe("check", f"swift rlhf --rlhf_type grpo --model '{text}' --dataset '{text}' --beta x")
    safe(
        "report",
        tmp_path / text.replace("/", "").replace("\x00", "").encode("ascii", "ignore").decode(),
    )


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_an_error_is_safe_in_a_traceback(text, tmp_path):
    """As Python and ms-swift print one."""
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"image": f"{text}.png", "problem": "p", "solution": text, "frame": [text]})
    )
    with pytest.raises(DataError) as raised:
        list(read_rows(tmp_path / "rows.jsonl"))
    said = "".join(traceback.format_exception_only(raised.value))
    assert all(c.isprintable() or c == "\n" for c in said), ascii(said)


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_a_page_shows_control_characters(text):
    row = {"url": "", "boxes": [], "empty": "", "place": text, "facts": [text], "remarks": [text]}
    row |= {"problem": text, "solution": text, "columns": [("name", text)]}
    page = render("rows.html", title="t", shown=text, rows=[row], style="", lead="", facts=[])
    assert "<script>alert" not in page
    assert visible(page) == page
