"""The planner's figures stand in the recipes' headers and in docs/reference/recipes.md."""

import importlib.util
import re
from pathlib import Path

from swift_vlrft.memory.settings import GIB

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = sorted((REPOSITORY / "recipes").glob("*/*.sh"))

spec = importlib.util.spec_from_file_location("headers", REPOSITORY / "dev" / "recipe_headers.py")
headers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(headers)


STATED = {path: headers.figures(path.read_text()) for path in RECIPES}


def test_recipes_headers_say_what_the_planner_says():
    for path in RECIPES:
        plan, stated = headers.plan_of(path), STATED[path]
        assert stated is not None, f"{path}: no figures; run python dev/recipe_headers.py {path}"
        peak, _, phase = stated
        assert (peak, phase) == (round(plan.peak.total / GIB, 1), plan.peak.name)
        assert plan.fits, path


def test_the_pages_table_of_recipes_has_the_headers_figures():
    text = (REPOSITORY / "docs" / "reference" / "recipes.md").read_text()
    rows = re.findall(r"^\| \[`(\w+/[\w+]+\.sh)`.*\| (\S+) of (\d+), ([^|]+) \|$", text, re.M)
    stated = {name: (float(peak), int(gpu), phase) for name, peak, gpu, phase in rows}
    assert stated == {f"{path.parent.name}/{path.name}": STATED[path] for path in RECIPES}
