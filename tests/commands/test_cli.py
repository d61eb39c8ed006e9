"""The command vlrft, as a person types it."""

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

import swift_vlrft
from swift_vlrft.cli import app
from swift_vlrft.commands.output import show, table

run = CliRunner().invoke


def test_plugin_prints_a_file_that_exists():
    result = run(app, ["plugin"])
    assert result.exit_code == 0
    assert Path(result.stdout.strip()).name == "vlrft.py" and Path(result.stdout.strip()).is_file()


def test_tiny_says_what_is_wrong(tmp_path):
    unknown = run(app, ["tiny", "llava", str(tmp_path / "x")])
    assert unknown.exit_code == 2 and "known: qwen2_5_vl, qwen2_vl, glm4v" in unknown.output
    exists = run(app, ["tiny", "qwen2_vl", str(tmp_path)])
    assert exists.exit_code == 2 and "exists" in exists.output


def test_an_unknown_demo_task_lists_the_known_ones(tmp_path):
    result = run(app, ["demo", "--task", "digits", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "unknown demo task 'digits'; known: colours, coins, mixed" in result.output


def test_help_and_rewards_come_without_torch_or_swift():
    code = (
        "import sys, swift_vlrft.cli, swift_vlrft.rewards, json;"
        "heavy = ('torch', 'swift', 'transformers', 'datasets');"
        "print(json.dumps([m for m in heavy if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_recipe_lists_names_and_prints_paths():
    names = run(app, ["recipe"]).output.split()
    assert "qwen2_5_vl_3b/detection_4x80g" in names and len(names) > 10
    for name in ("qwen2_5_vl_3b/detection_4x80g", "qwen2_5_vl_3b/detection_server_6+2x80g.sh"):
        assert Path(run(app, ["recipe", name]).output.strip()).is_file()
    unknown = run(app, ["recipe", "llava/detection"])
    assert unknown.exit_code == 2 and "; known: " in unknown.output and "demo_cpu" in unknown.output


def test_version_and_the_short_help():
    assert run(app, ["--version"]).stdout.strip() == swift_vlrft.__version__
    assert run(app, ["plan", "-h"]).stdout == run(app, ["plan", "--help"]).stdout


def test_options_are_taken_as_ms_swift_spells_its_flags(tmp_path):
    for spelling in ("--max-length", "--max_length"):
        result = run(app, ["data", "check", str(tmp_path), spelling, "5"])
        assert result.exit_code == 2 and "give --model" in result.output


def test_an_error_is_one_line_and_exit_code_2(tmp_path):
    for arguments in (["tiny", "llava", str(tmp_path / "x")], ["data", "show", str(tmp_path)]):
        result = run(app, arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1


def test_a_table_in_a_file_is_plain_and_breaks_no_name(capsys):
    path = "/data/" + "x" * 300
    drawn = table("path", ">rows", "why", title="files", wraps=("why",))
    drawn.add_row(path, "3", "a reason of several words " * 8)
    show(drawn)
    title, heading, row = capsys.readouterr().out.splitlines()
    assert (title.strip(), heading.split()) == ("files", ["path", "rows", "why"])
    assert row.split()[:3] == [path, "3", "a"] and row.isascii()
