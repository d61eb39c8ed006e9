"""The `# memory` line in the shipped recipes' headers: the planner's figures, never by hand.

    python dev/recipe_headers.py [RECIPE ...]        writes it; without a name, of all recipes

    # memory   peak 61.2 GiB of 80 per GPU in backward (vlrft plan)

tests/memory/test_headers.py plans every recipe again and compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from swift_vlrft.files.writing import write_atomically
from swift_vlrft.memory.estimate import Plan, estimate
from swift_vlrft.memory.from_recipe import settings_of
from swift_vlrft.memory.settings import GIB, USABLE, parse_gpus
from swift_vlrft.recipe.run import read_run

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
LINE = re.compile(r"^# memory\b.*(?:\n#  {6,}\S.*)*$", re.MULTILINE)
FIGURES = re.compile(r"peak (\d+\.\d) GiB of (\d+) per GPU in ([\w/ -]+) \(vlrft plan\)")


def plan_of(path: Path) -> Plan:
    """For the GPUs in the recipe's name: the trainer's part of 6+2x80g."""
    match = re.search(r"(\d+)(?:\+\d+)?x(\d+)g", path.name)
    if match is None:
        raise ValueError(f"{path}: no GPUs in its name, as in detection_4x80g.sh")
    return estimate(settings_of(read_run(path, {}), parse_gpus(f"{match[1]}x{match[2]}")))


def with_header(text: str, plan: Plan) -> str:
    """``text`` with its `# memory` line replaced; ValueError where there is none."""
    # As GPUs are sold: what torch sees is one or two per cent less.
    size = round(plan.settings.gpu_bytes / GIB / USABLE)
    line = f"# memory   peak {plan.peak.total / GIB:.1f} GiB of {size} per GPU in "
    line += f"{plan.peak.name} (vlrft plan)"
    text, count = LINE.subn(lambda _: line, text, count=1)
    if not count:
        raise ValueError("the recipe has no line `# memory` in its header to write the figures to")
    return text


def figures(text: str) -> tuple[float, int, str] | None:
    """Peak, GPU size and phase, as a recipe's header states them."""
    match = FIGURES.search(text)
    return (float(match[1]), int(match[2]), match[3]) if match else None


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted(RECIPES.glob("*/*.sh")):
        text = path.read_text()
        mode = path.stat().st_mode
        write_atomically(path, with_header(text, plan_of(path)))
        path.chmod(mode)
