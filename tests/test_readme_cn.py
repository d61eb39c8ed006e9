"""README_CN.md keeps in step with README.md: same commands and examples, same tables, same links.

Prose is free. What must be equal is compared in order: every code block, every heading's level,
every table's shape, and in each table row the code and the numbers.
"""

import re
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGLISH = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README_CN.md").read_text()

BLOCK = re.compile(r"```(?:\w*)\n.*?```", re.S)
HINT = "README.md has changed: bring README_CN.md into step"


def same(found: list, wanted: list, what: str) -> None:
    for i, (chinese, english) in enumerate(zip_longest(found, wanted)):
        assert chinese == english, f"{HINT} ({what} {i + 1}): {english!r}"


def test_same_code_blocks():
    same(BLOCK.findall(CHINESE), BLOCK.findall(ENGLISH), "code block")


def test_same_headings():
    levels = [
        [heading.count("#") for heading in re.findall(r"^#+ ", BLOCK.sub("", text), re.M)]
        for text in (CHINESE, ENGLISH)
    ]
    same(*levels, "heading")


def rows(text: str) -> list[tuple[int, list[str], list[str]]]:
    """Every table row: its number of cells, its code, its first cell's numbers."""
    lines = [line for line in BLOCK.sub("", text).splitlines() if line.startswith("|")]
    found = []
    for line in lines:
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        found.append((len(cells), re.findall(r"`[^`]+`", line), re.findall(r"\d+", cells[0])))
    return found


def test_same_tables():
    same(rows(CHINESE), rows(ENGLISH), "table row")


def test_same_files_are_linked_and_exist():
    links = [re.findall(r"\]\(([^)]+)\)", BLOCK.sub("", text)) for text in (CHINESE, ENGLISH)]
    same(sorted({*links[0]} - {"README.md"}), sorted({*links[1]} - {"README_CN.md"}), "link")
    assert all((ROOT / link).exists() for link in links[0] if not link.startswith("http"))
