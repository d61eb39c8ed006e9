"""The figures in the shipped recipes' headers and in docs/plan.md are the planner's."""

import importlib.util
import re
from pathlib import Path

import pytest
from support.nightly import first_now

from swift_vlrft.memory.settings import GIB

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = sorted((REPOSITORY / "recipes").glob("*/*.sh"))

spec = importlib.util.spec_from_file_location("headers", REPOSITORY / "dev" / "recipe_headers.py")
headers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(headers)


STATED = {path: headers.figures(path.read_text()) for path in RECIPES}
TRACED = [path for path in RECIPES if STATED[path] and STATED[path][3] == "traced"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "paths", first_now([*sorted(set(RECIPES) - set(TRACED)), TRACED[-1]], TRACED[:-1])
)
def test_recipes_headers_say_what_the_planner_says(paths):
    for path in paths:
        plan, stated = headers.plan_of(path), STATED[path]
        assert stated is not None, f"{path}: no figures; run python dev/recipe_headers.py {path}"
        peak, _, phase, how = stated
        assert (peak, phase, how) == (round(plan.peak.total / GIB, 1), plan.peak.name, plan.how)
        assert plan.fits, path


def test_the_pages_table_of_recipes_has_the_headers_figures():
    text = (REPOSITORY / "docs" / "plan.md").read_text()
    rows = re.findall(
        r"^\| `(\w+/[\w+]+\.sh)` \| (\S+) of (\d+) \| ([^|]+) \| (\w+) \|$", text, re.M
    )
    stated = {name: (float(peak), int(gpu), phase, how) for name, peak, gpu, phase, how in rows}
    assert stated == {f"{path.parent.name}/{path.name}": STATED[path] for path in RECIPES}


def test_a_header_line_is_replaced_and_nothing_else():
    plan = headers.plan_of(RECIPES[0])
    text = "#!/usr/bin/env bash\n# memory   (see vlrft plan)\n# run      x\nset -e\n"
    new = headers.with_header(text, plan)
    assert headers.figures(new)[0] == round(plan.peak.total / GIB, 1)
    assert headers.with_header(new, plan) == new
    assert new.splitlines()[:1] + new.splitlines()[2:] == [
        line for line in text.splitlines() if "memory" not in line
    ]
