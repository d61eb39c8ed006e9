"""Read the command of this process: ms-swift passes a plugin nothing of what it parses.

A YAML or JSON configuration (``swift rlhf cfg.yaml``) has already been turned into flags by
ms-swift's launcher.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.flags import flags_of
from swift_vlrft.recipe.reader import Flag, Recipe
from swift_vlrft.recipe.run import Run, resolve
from swift_vlrft.recipe.wrappers import COMMANDS


def supervised() -> bool:
    """Return whether this is `swift sft` or `megatron sft`."""
    return Path(sys.argv[0]).stem == "sft"


def running_run(model_type: str | None = None) -> Run:
    """Return the run of this process; one that `swift` did not start counts as `swift rlhf`."""
    name = Path(sys.argv[0]).stem
    return run_of(sys.argv[1:], model_type, name if name in COMMANDS else "rlhf")


def run_of(words: Sequence[str], model_type: str | None = None, command: str = "rlhf") -> Run:
    """Return the run of a command's flags in this environment; ``model_type`` is its default."""
    flags = [*flags_of(words)]
    if model_type:
        flags.insert(0, Flag("model_type", (model_type,), 1))
    environment = dict(os.environ)
    if processes := environment.get("WORLD_SIZE"):  # torchrun's, of all nodes
        environment |= {"NPROC_PER_NODE": processes, "NNODES": "1"}
    recipe = Recipe(
        path=Path("command"), command=("swift", command), flags=flags, environment=environment
    )
    return resolve(recipe, facts())


def run_of_model(model: str | None, model_type: str | None, **flags: object) -> Run:
    """Return a run that only says which model it is, and how it sees images."""
    given = {"model": model, **flags}.items()
    words = [word for name, value in given if value for word in (f"--{name}", str(value))]
    return run_of(words, model_type)
