"""`vlrft check --run`: bash reads the script, and nothing that the script names starts.

run.jsonl: ``commands`` are the flags of each `swift` command that bash reaches, None for a value
that only a program knows, ``lines`` where they stand, ``notes`` the lines of what was not read,
``kinds`` those of other notes, ``refused`` a word of the refusal. The scripts that try to get out
are in hostile.jsonl: whatever they say, there is no file afterwards that was not there before.
"""

import json
import os
from pathlib import Path

import psutil
import pytest
from support.command_line import vlrft

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe import restricted
from swift_vlrft.recipe.by_bash import run_recipes
from swift_vlrft.recipe.reader import RecipeError

HERE = Path(__file__).parent
PLUGIN = str(shipped_file("plugins", "vlrft.py"))


def table(name):
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(restricted, "SECONDS", 3.0)

    def write(text):
        (tmp_path / "run.sh").write_text(text)
        return Path("run.sh")

    return write


def flags_of(recipe):
    return {f.name: list(f.values) if f.known else None for f in recipe.flags if f.name}


@pytest.mark.slow
@pytest.mark.parametrize("row", table("run.jsonl"), ids=lambda row: row["why"])
def test_every_command_that_bash_reaches_is_read(row, script):
    path = script(row["script"])
    if "refused" in row:
        with pytest.raises(RecipeError, match=row["refused"]):
            run_recipes(path, {"PATH": os.environ["PATH"]})
        return
    recipes = run_recipes(path, {"PATH": os.environ["PATH"]})
    commands = json.loads(json.dumps(row["commands"]).replace("@PLUGIN@", PLUGIN))
    assert [flags_of(recipe) for recipe in recipes] == commands
    assert [recipe.line for recipe in recipes] == row["lines"]
    unread = {note.line for recipe in recipes for note in recipe.notes if note.kind == "unread"}
    assert unread == set(row.get("notes", []))
    others = {note.kind: note.line for r in recipes for note in r.notes if note.kind != "unread"}
    assert others == row.get("kinds", {})
    for name, value in row.get("environment", {}).items():
        assert all(recipe.environment[name] == value for recipe in recipes)


@pytest.mark.slow
@pytest.mark.parametrize("row", table("hostile.jsonl"), ids=lambda row: row["why"])
def test_nothing_starts_and_nothing_is_written(row, script, tmp_path):
    path = script(row["script"] + "\nswift sft --model m\n")
    (tmp_path / "evil.sh").write_text("touch touched\n")
    (tmp_path / "evil.sh").chmod(0o755)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    processes = set(psutil.Process().children(recursive=True))
    try:
        run_recipes(path)
    except RecipeError as error:
        # On a busy machine few of its processes run at a time, and bash comes to its end.
        expected = row.get("refused") or row["perhaps"]
        assert "\n" not in str(error) and expected in str(error)
    else:
        assert "refused" not in row
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert set(psutil.Process().children(recursive=True)) == processes


def test_the_command_checks_every_turn(script):
    path = script("for N in 1 many; do\n  swift sft --model m --dataset d --max_steps $N\ndone\n")
    done = vlrft("check", "--run", "--json", path)
    (finding,) = [f for f in json.loads(done.stdout)["findings"] if f["level"] == "problem"]
    assert done.exit_code == 1 and "many" in finding["text"] and finding["line"] == 2
    both = vlrft("check", "--run", "--fix", path)
    assert both.exit_code == 2 and "--fix" in both.output
