"""docs/ names tests, files and commands that are there."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from swift_vlrft.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "recipes").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_tests_files_and_links_exist(page):
    text = page.read_text()
    for path, test in re.findall(
        r"`((?:tests|swift_vlrft|recipes|benchmarks)/[\w/.]+)(?:::(\w+))?`", text
    ):
        assert (ROOT / path).exists(), path
        assert not test or f"def {test}(" in (ROOT / path).read_text(), test
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / target).exists(), target


def test_named_commands_exist():
    known = set(get_command(app).commands)
    for page in PAGES:
        named = set(re.findall(r"`vlrft (\w+)", page.read_text()))
        assert named <= known, f"{page.name}: {named - known}"


def test_every_row_of_the_troubleshooting_tables_names_its_source():
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    heads = ("| look at", "| phase", "|---")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    rows = [line for line in rows if not line.startswith(heads)]
    source = re.compile(r"\w#\d+|`tests/|`vlrft \w+`|\(reasoned\)")
    assert [line for line in rows if not source.search(line)] == []


def test_nothing_is_left_to_fill_in():
    for page in (*ROOT.glob("*.md"), *PAGES):
        left = re.findall(r"^[A-Z][A-Z0-9_]{3,}$|TODO|FIXME|XXX", page.read_text(), re.M)
        assert not left, f"{page}: {left}"
