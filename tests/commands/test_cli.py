"""The command vlrft, as a person types it."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import swift_vlrft
from swift_vlrft.cli import app
from swift_vlrft.commands.output import show, table


def run(*words):
    return CliRunner().invoke(app, words)


def test_plugin_prints_a_file_that_exists():
    result = run("plugin")
    file = Path(result.stdout.strip())
    assert result.exit_code == 0 and file.name == "vlrft.py" and file.is_file()


def test_help_rewards_and_evaluate_come_without_torch_or_swift():
    code = """if True:
        import sys, swift_vlrft, swift_vlrft.cli, swift_vlrft.rewards
        print([m for m in ("torch", "swift", "transformers", "datasets") if m in sys.modules])
        from swift_vlrft import evaluate
        print([m for m in ("torch", "swift", "transformers", "vllm") if m in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
    assert "evaluate" in dir(swift_vlrft) and not hasattr(swift_vlrft, "evaluated")


def test_recipe_lists_names_and_prints_paths():
    names = run("recipe").output.split()
    assert "qwen2_5_vl_3b/detection_4x80g" in names and len(names) > 10
    for name in ("qwen2_5_vl_3b/detection_4x80g", "qwen2_5_vl_3b/detection_server_6+2x80g.sh"):
        assert Path(run("recipe", name).output.strip()).is_file()


def test_version_and_the_short_help():
    assert run("--version").stdout.strip() == swift_vlrft.__version__
    assert run("plan", "-h").stdout == run("plan", "--help").stdout


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("tiny llava x", "known: qwen2_5_vl, qwen2_vl, glm4v"),
        ("tiny qwen2_vl .", "exists"),
        ("demo --task digits --out .", "'digits'; known: colours, coins, mixed"),
        ("recipe llava/detection", "demo_cpu"),
        ("data show .", ""),
        # Options are taken as ms-swift spells its flags.
        ("data check . --max-length 5", "--model"),
        ("data check . --max_length 5", "--model"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(command, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*command.split())
    assert result.exit_code == 2 and said in result.stderr
    assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1


def test_a_table_in_a_file_is_plain_and_breaks_no_name(capsys):
    path = "/data/" + "x" * 300
    drawn = table("path", ">rows", "why", title="files", wraps=("why",))
    drawn.add_row(path, "3", "a reason of several words " * 8)
    show(drawn)
    title, heading, row = capsys.readouterr().out.splitlines()
    assert (title.strip(), heading.split()) == ("files", ["path", "rows", "why"])
    assert row.split()[:3] == [path, "3", "a"] and row.isascii()
