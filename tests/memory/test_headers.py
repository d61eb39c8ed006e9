"""The planner's figures stand in the recipes' headers and in docs/reference/recipes.md."""

import re
from pathlib import Path

import pytest
import recipe_headers as headers

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = sorted((REPOSITORY / "recipes").glob("*/*.sh"))

FIGURES = re.compile(r"peak (\d+\.\d) GiB of (\d+) per GPU in ([\w/ -]+) \(vlrft plan\)")
TEXTS = {str(path.relative_to(REPOSITORY / "recipes"))[:-3]: path.read_text() for path in RECIPES}


@pytest.mark.slow
def test_the_shipped_recipes_are_the_rendered_table():
    rendered = headers.rendered()
    stale = [name for name, text in rendered.items() if TEXTS.get(name) != text]
    assert not stale, f"{stale}: run python dev/recipe_headers.py"
    assert len(TEXTS) == len(rendered) + 3  # two that start an engine, and one that runs swift sft
    for name in TEXTS.keys() - rendered.keys():
        assert headers.memory_of(name, TEXTS[name]) in TEXTS[name], name


def test_the_pages_table_of_recipes_has_the_headers_figures():
    text = (REPOSITORY / "docs" / "reference" / "recipes.md").read_text()
    rows = re.findall(r"^\| \[`(\w+/[\w+]+)\.sh`.*\| (\S+) of (\d+), ([^|]+) \|$", text, re.M)
    stated = {name: figures for name, *figures in rows}
    assert stated == {name: [*FIGURES.search(text).groups()] for name, text in TEXTS.items()}
