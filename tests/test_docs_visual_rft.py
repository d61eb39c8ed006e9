"""The commands of docs/visual_rft.md and docs/publish.md: recipes, options and values exist."""

import json
import re
import shlex
from typing import Any

import pytest
from test_docs import ROOT, blocks
from typer.main import get_command
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import SOURCES
from swift_vlrft.files.shipped import shipped_file

PAGES = [ROOT / "docs" / name for name in ("visual_rft.md", "publish.md")]
LINES = [
    line
    for page in PAGES
    for block in blocks(page, "bash")
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip()
]


def parsed(words: list[str]) -> Any:
    """The context of the command that the words name, its options read, nothing run."""
    command, context = get_command(app), None
    while True:
        name = words[0]
        context = command.make_context(name, words[1:], parent=context)
        rest = [*context._protected_args, *context.args]
        if not hasattr(command, "commands") or not rest:
            return context
        command, words = command.get_command(context, rest[0]), rest


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("vlrft")])
def test_the_options_exist(line):
    assert parsed(shlex.split(line)).command.name not in (None, "vlrft")


def test_the_recipes_and_sets_exist():
    page = PAGES[0].read_text()
    named = re.findall(r"vlrft recipe (\w+/\w+)\)", page)
    assert len(named) >= 6
    for name in named:
        assert shipped_file("recipes", f"{name}.sh").is_file()
    known = {source.hub_id for source in SOURCES}
    assert set(re.findall(r"laolao77/\w+", page)) <= known


def test_the_training_commands_are_right(tmp_path):
    page = PAGES[0]
    block = next(one for one in blocks(page, "bash") if one.startswith("swift rlhf"))
    (tmp_path / "run.sh").write_text(block)
    done = CliRunner().invoke(app, ["check", "--fast", "--json", str(tmp_path / "run.sh")])
    assert done.exit_code == 0 and json.loads(done.stdout)["findings"] == []
    # A recipe with the data set that the page names beside it, as its line in the table says.
    for line in (one for one in LINES if one.startswith("DATASET=laolao77")):
        variable, name = re.fullmatch(r'(\S+) bash "\$\(vlrft recipe (\S+)\)"', line).groups()
        recipe = shipped_file("recipes", f"{name}.sh").read_text()
        (tmp_path / "run.sh").write_text(f"export {variable}\n{recipe}")
        done = CliRunner().invoke(app, ["check", "--fast", "--json", str(tmp_path / "run.sh")])
        assert done.exit_code == 0, (line, done.stdout)
