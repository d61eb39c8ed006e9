"""The figures in the shipped recipes' headers and in docs/plan.md are the planner's."""

import importlib.util
import re
from pathlib import Path

import pytest

from swift_vlrft.memory.settings import GIB

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = sorted((REPOSITORY / "recipes").glob("*/*.sh"))

spec = importlib.util.spec_from_file_location("headers", REPOSITORY / "dev" / "recipe_headers.py")
headers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(headers)


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_recipes_header_says_what_the_planner_says(path):
    plan = headers.plan_of(path)
    stated = headers.figures(path.read_text())
    assert stated is not None, f"{path}: no figures; run python dev/recipe_headers.py {path}"
    peak, _, phase, how = stated
    assert (peak, phase, how) == (round(plan.peak.total / GIB, 1), plan.peak.name, plan.how)
    assert plan.fits


def test_the_pages_table_of_recipes_has_the_headers_figures():
    text = (REPOSITORY / "docs" / "plan.md").read_text()
    rows = re.findall(
        r"^\| `(\w+/[\w+]+\.sh)` \| (\S+) of (\d+) \| ([^|]+) \| (\w+) \|$", text, re.M
    )
    stated = {name: (float(peak), int(gpu), phase, how) for name, peak, gpu, phase, how in rows}
    assert stated == {
        f"{path.parent.name}/{path.name}": headers.figures(path.read_text()) for path in RECIPES
    }


def test_a_header_line_is_replaced_and_nothing_else():
    plan = headers.plan_of(RECIPES[0])
    text = "#!/usr/bin/env bash\n# memory   (see vlrft plan)\n# run      x\nset -e\n"
    new = headers.with_header(text, plan)
    assert headers.figures(new)[0] == round(plan.peak.total / GIB, 1)
    assert headers.with_header(new, plan) == new
    assert [line for line in new.splitlines() if "memory" not in line] == [
        line for line in text.splitlines() if "memory" not in line
    ]
