"""Find the shipped recipes by the names that `vlrft recipe` prints.

recipe_path("qwen2_5_vl_3b/detection_4x80g")        .../recipes/qwen2_5_vl_3b/detection_4x80g.sh
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe.reader import RecipeError


def shipped_recipes() -> dict[str, Path]:
    """Return every shipped recipe, by its name without .sh."""
    folder = shipped_file("recipes", "demo_cpu.sh").parent
    return {str(p.relative_to(folder).with_suffix("")): p for p in sorted(folder.rglob("*.sh"))}


def is_command(text: str) -> bool:
    """Tell whether this is a whole `swift ...` command rather than a file or a name."""
    return "swift " in text and not os.path.exists(text)  # no Path: it refuses a long command


def recipe_path(name: str | Path) -> Path:
    """Return the file of that path, or the shipped recipe of that name. RecipeError, with near
    names, if there is neither.
    """
    if os.path.exists(name):
        return Path(name)
    known, wanted = shipped_recipes(), str(name).removesuffix(".sh")
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    listed = f"; near names: {', '.join(near)}" if near else "; `vlrft recipe` lists the names"
    raise RecipeError(f"{name}: no such file, and no shipped recipe has that name{listed}")
