"""Read the command of this process: ms-swift passes a plugin nothing of what it parses.

A YAML or JSON configuration (``swift rlhf cfg.yaml``) has already been turned into flags by
ms-swift's launcher.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.flags import flags_of
from swift_vlrft.recipe.reader import Flag, Recipe
from swift_vlrft.recipe.run import Run, resolve
from swift_vlrft.recipe.wrappers import COMMANDS


@dataclass
class CommandLine:
    """The flags that say which model runs, and which rows and images it sees."""

    model: str | None = None
    model_type: str | None = None
    resume_from_checkpoint: str | None = None
    adapters: Sequence[str] = ()
    system: str | None = None
    max_length: int | None = None
    max_pixels: int | None = None
    truncation_strategy: str | None = None
    reward_funcs: Sequence[str] = ()


def supervised() -> bool:
    """Return whether this is `swift sft` or `megatron sft`."""
    return Path(sys.argv[0]).stem == "sft"


def running_run(model_type: str | None = None) -> Run:
    """Return the run of this process; one that `swift` did not start counts as `swift rlhf`."""
    name = Path(sys.argv[0]).stem
    return run_of(sys.argv[1:], model_type, name if name in COMMANDS else "rlhf")


def run_of(words: Sequence[str], model_type: str | None = None, command: str = "rlhf") -> Run:
    """Return the run of a command's flags in this environment; ``model_type`` is its default."""
    flags = [Flag(flag.name, flag.values, 1) for flag in flags_of(words)]
    if model_type:
        flags.insert(0, Flag("model_type", (model_type,), 1))
    environment = dict(os.environ)
    if processes := environment.get("WORLD_SIZE"):  # torchrun's, of all nodes
        environment |= {"NPROC_PER_NODE": processes, "NNODES": "1"}
    recipe = Recipe(
        path=Path("command"), command=("swift", command), flags=flags, environment=environment
    )
    return resolve(recipe, facts(may_import=False))


def running_command() -> CommandLine:
    """Return the model's flags of this process's run."""
    return command_of(running_run())


def command_of(run: Run) -> CommandLine:
    """Return the model's flags of a run."""
    return CommandLine(
        model=run.text("model"),
        model_type=run.text("model_type"),
        resume_from_checkpoint=run.text("resume_from_checkpoint"),
        adapters=run.texts("adapters"),
        system=run.text("system"),
        max_length=run.optional("max_length"),
        max_pixels=run.optional("max_pixels"),
        truncation_strategy=run.text("truncation_strategy")
        if "truncation_strategy" in run.given
        else None,
        reward_funcs=run.texts("reward_funcs"),
    )
