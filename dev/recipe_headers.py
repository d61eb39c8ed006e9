"""Write the shipped recipes from recipes/recipes.toml, with the planner's figures in their headers.

    python dev/recipe_headers.py

    # memory   peak 61.2 GiB of 80 per GPU in backward (vlrft plan)

tests/memory/test_headers.py renders every recipe again and compares.
"""

from __future__ import annotations

import re
from pathlib import Path

from swift_vlrft.files.writing import write_atomically
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.from_recipe import settings_of
from swift_vlrft.memory.scripts import scripts
from swift_vlrft.memory.settings import GIB, parse_gpus
from swift_vlrft.recipe.reader import only, read_text
from swift_vlrft.recipe.run import resolve

RECIPES = Path(__file__).resolve().parents[1] / "recipes"


def memory_of(name: str, text: str) -> str:
    """Return the planner's peak on the GPUs in the recipe's name: the trainer's of 6+2x80g."""
    match = re.search(r"(\d+)(?:\+\d+)?x(\d+)g$", name)
    if match is None:
        raise ValueError(f"{name}: no GPUs in its name, as in detection_4x80g")
    run = resolve(only(read_text(text, RECIPES / f"{name}.sh", {})))
    peak = estimate(settings_of(run, parse_gpus(f"{match[1]}x{match[2]}"))).peak
    return f"peak {peak.total / GIB:.1f} GiB of {match[2]} per GPU in {peak.name} (vlrft plan)"


def rendered() -> dict[str, str]:
    """Return the text of every recipe of the table."""
    return {name: script.text(memory_of(name, script.text())) for name, script in scripts().items()}


if __name__ == "__main__":
    for name, text in rendered().items():
        path = RECIPES / f"{name}.sh"
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text)
        path.chmod(0o755)
