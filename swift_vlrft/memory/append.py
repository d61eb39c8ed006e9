"""Run a recipe with other flags.

run_with(path, {"move_model_batches": "16", "MAX_PIXELS": "401408"})
    .command    MAX_PIXELS=401408 bash recipe.sh --move_model_batches 16
    .problems   what in the recipe stands against it, with the line to change
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.recipe.flags import flags_of
from swift_vlrft.recipe.reader import CONFIGURATION, Recipe, kept_from, only, read_recipes
from swift_vlrft.shared_prefix import settings as shared_prefix

IMAGE_LIMITS = ("max_pixels", "model_kwargs")
"""Flags that `swift rollout` needs as the trainer does: both encode the same images."""

MACHINE_VARIABLES = ("NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES")
"""Variables of the caller's shell that say nothing about other machines (--gpus)."""

PLANNED = (*MACHINE_VARIABLES, *RESOLUTION, shared_prefix.SWITCH)
"""Variables that a plan reads in the environment of the command."""

LOGIN_VARIABLES = ("HOME", "PATH", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "TMPDIR", "_")


@dataclass(frozen=True)
class RunWith:
    command: str
    problems: tuple[str, ...]


def run_with(path: Path, flags: Mapping[str, str], arguments: Sequence[str] = ()) -> RunWith:
    """Return the command that runs a recipe with ``arguments`` and, after them, ``flags``. Names in
    capitals are variables.
    """
    variables = {name: value for name, value in flags.items() if name.isupper()}
    named = [(f"--{name}", value) for name, value in flags.items() if not name.isupper()]
    words = [*arguments, *(word for pair in named for word in pair)]
    configured = path.suffix in CONFIGURATION
    program = " ".join(only(read_recipes(path)).command) if configured else "bash"
    set_before = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    command = " ".join([*set_before, program, shlex.join([str(path), *words])])
    if configured:
        return RunWith(command, ())
    commands = read_recipes(path, {**os.environ, **variables}, words)
    problems = [*kept_from(commands, words), *_problems(commands, path, words, variables)]
    return RunWith(command, tuple(problems))


def _problems(
    commands: Sequence[Recipe], path: Path, words: Sequence[str], variables: Mapping[str, str]
) -> Iterator[str]:
    """Yield what keeps variables and limits of images from commands, with the line to change."""
    training = [command for command in commands if command.trains] or commands
    named = {flag.name: flag.values for flag in flags_of(words)}
    for name, value in variables.items():
        if any(command.environment.get(name) != value for command in training):
            code = enumerate(path.read_text(errors="replace").split("\n"), 1)
            lines = [number for number, line in code if re.search(rf"(?<!\w){name}=", line)]
            yield (
                f"{path}:{lines[-1] if lines else training[0].line}: {name} is set there whatever "
                f"the caller says: write {name}=${{{name}:-{value}}}"
            )
    for command in commands:
        for name in IMAGE_LIMITS if command.command[-1] == "rollout" else ():
            if name in named and command.values(name) != named[name]:
                text = f"`swift rollout` needs --{name} {shlex.join(named[name])}, too"
                yield f"{path}:{command.line}: {text}"


def elsewhere(processes: int = 0) -> dict[str, str]:
    """Return the caller's variables without those of GPUs and nodes here.

    NPROC_PER_NODE stays where it is ``processes``, one for each GPU of the other machine.
    """
    kept = ("NPROC_PER_NODE", str(processes))
    return {n: v for n, v in os.environ.items() if n not in MACHINE_VARIABLES or (n, v) == kept}


def callers_part(recipe: Recipe, environment: Mapping[str, str]) -> str:
    """Write the caller's variables that a recipe or its plan reads in front of a command.

    Keys are never shown, and what the script sets itself is left out.
    """
    assignments = []
    for name, value in environment.items():
        asked = name in PLANNED or re.search(rf"\b{name}\b", recipe.text)
        mine = name in LOGIN_VARIABLES or recipe.environment.get(name) != value
        if asked and not mine:
            assignments.append(f"{name}={'...' if is_secret_name(name) else shlex.quote(value)}")
    return " ".join(assignments)
