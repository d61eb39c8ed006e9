"""What a model or a stranger's file says is shown by every command, and never done."""

import ast
import traceback
from pathlib import Path

import pytest
from support.command_line import vlrft
from support.stored_sets import GOLD, PROBLEM, picture
from support.written_sets import write_rows

import swift_vlrft
from swift_vlrft.datasets import DataError, read_rows
from swift_vlrft.files.text import visible
from swift_vlrft.report.html import render

COMMANDS = Path(swift_vlrft.__file__).parent / "commands"
EVIL = {
    "escapes": "\x1b[31mred\x1b]8;;http://a.b\x1b\\x \x1b]52;c;cm0=\x07 \x9b2J\x9d52;c;x\x9c",
    "characters": "\x07\x08\r\x7f\u202egnp.exe\u2066 \ud800 \u2028\x85",
    "rich's markup": "[red]x[/red] [/] [link=http://a.b]y :boom:",
    "HTML": "<script>alert(1)</script>",
}
every_evil = pytest.mark.parametrize("text", EVIL.values(), ids=EVIL)
PRINTS = {"plugin.py", "recipe.py", "output.py"}
"""plugin and recipe print a path of this package for $(...), which is not changed."""


def test_no_command_prints_but_through_one_file():
    for file in COMMANDS.glob("*.py"):
        calls = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]
        names = {ast.unparse(call.func) for call in calls}
        if file.name not in PRINTS:
            assert not names & {"print", "typer.echo", "typer.secho", "click.echo"}, file.name


def safe(*arguments):
    result = vlrft(*arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    odd = {c for c in result.output if not c.isprintable() and c != "\n"}
    assert not odd, (arguments, odd)
    return result.output


@pytest.mark.slow
@every_evil
def test_what_a_model_or_a_file_says_is_shown_and_not_done(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = f"<think>t</think><answer>{text}</answer>"
    row = {"id": text, "completion": answer, "solution": "dog", "task": "classification"}
    row |= {"vlrft_classification": 0, "category": text, "image_id": text}
    write_rows(Path("a.jsonl"), row, row | {"id": "2", "solution": text})
    write_rows(Path("b.jsonl"), row | {"completion": "<answer>dog</answer>"})
    write_rows(Path("bad.jsonl"), {text: 1})
    write_rows(Path("tasks.jsonl"), row | {"task": text}, row | {"task": ""})
    for arguments in (["a.jsonl", "--show", 3], ["tasks.jsonl"]):
        said = safe("score", *arguments)
        if "[" in text:
            assert "[red]" in said or "\\x1b[31m" in said
    for more in ([], ["--json"]):
        safe("score", "a.jsonl", *more)
        safe("score", "bad.jsonl", *more)
        safe("compare", "a.jsonl", "b.jsonl", *more)
        safe("eval", "--predictions", "a.jsonl", "--bootstrap", 0, *more)
    Path("0.png").write_bytes(picture())
    right = {"image": "0.png", "problem": PROBLEM, "solution": GOLD}
    wrong = {"image": f"{text}.png"}, {"task": text}, {"solution": text}
    write_rows(Path("rows.jsonl"), right, *(right | one for one in wrong))
    safe("data", "check", "rows.jsonl")
    safe("data", "check", "rows.jsonl", "--json")
    safe("data", "convert", "rows.jsonl", "out", "--keep-going")
    safe("check", f"swift rlhf --rlhf_type grpo --model '{text}' --dataset '{text}' --beta x")
    safe("report", text.replace("/", "").encode("ascii", "ignore").decode())


@every_evil
def test_an_error_is_safe_in_a_traceback(text, tmp_path):
    """As Python and ms-swift print one."""
    row = {"image": f"{text}.png", "problem": "p", "solution": text, "frame": [text]}
    write_rows(tmp_path / "rows.jsonl", row)
    with pytest.raises(DataError) as raised:
        list(read_rows(tmp_path / "rows.jsonl"))
    said = "".join(traceback.format_exception_only(raised.value))
    assert all(c.isprintable() or c == "\n" for c in said), ascii(said)


@every_evil
def test_a_page_shows_control_characters(text):
    row = {"url": "", "boxes": [], "empty": "", "place": text, "facts": [text], "remarks": [text]}
    row |= {"problem": text, "solution": text, "columns": [("name", text)]}
    page = render("rows.html", title="t", shown=text, rows=[row], style="", lead="", facts=[])
    assert "<script>alert" not in page
    assert visible(page) == page
