"""Run a recipe with other flags, or write its text with them.

run_with(path, {"move_model_batches": "16", "MAX_PIXELS": "401408"})
    .command    MAX_PIXELS=401408 bash recipe.sh --move_model_batches 16
    .problems   what in the recipe stands against it, with the line to change
applied(path, {"move_model_batches": "16", "MAX_PIXELS": "401408"}, out, remark)
                export MAX_PIXELS=401408 ... swift rlhf ... --move_model_batches 16 "$@"
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.recipe.flags import flags_of
from swift_vlrft.recipe.reader import (
    CONFIGURATION,
    Recipe,
    kept_from,
    only,
    read_recipe,
    read_recipes,
    read_text,
)
from swift_vlrft.shared_prefix import settings as shared_prefix

IMAGE_LIMITS = ("max_pixels", "model_kwargs")
"""Flags that `swift rollout` needs as the trainer does: both encode the same images."""

MACHINE_VARIABLES = ("NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES")
"""Variables of the caller's shell that say nothing about other machines (--gpus)."""

PLANNED = (*MACHINE_VARIABLES, *RESOLUTION, shared_prefix.SWITCH, shared_prefix.CACHE)
"""Variables that a plan reads in the environment of the command."""

LOGIN_VARIABLES = ("HOME", "PATH", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "TMPDIR", "_")

PER_NODE = {
    "NODE_RANK": "0 on the first node, 1 on the second",
    "MASTER_ADDR": "address of the first node",
}
"""Variables that differ between nodes; ms-swift passes them to torchrun (swift/cli/main.py:
get_torchrun_args)."""


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
    program = " ".join(read_recipe(path).command) if configured else "bash"
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


def writable(out: Path) -> None:
    """Raise ValueError for a place where no script can be written."""
    if out.suffix in CONFIGURATION:
        raise ValueError(f"{out}: the output is a script; name it *.sh")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; give a file in it, as {out / 'new.sh'}")


def applied(
    path: Path, flags: Mapping[str, str], out: Path, remark: str, arguments: Sequence[str] = ()
) -> str:
    """Return the text of a recipe with ``arguments`` and ``flags`` in it, for a script ``out``.
    ValueError, with the line to change, where the text does not let that.
    """
    if out.resolve() == path.resolve():
        raise ValueError(f"{out} is the recipe itself; give another name")
    variables = {name: value for name, value in flags.items() if name.isupper()}
    given = {flag.name: flag.values for flag in flags_of(arguments)}
    given |= {name: (value,) for name, value in flags.items() if not name.isupper()}
    words = [word for name, values in given.items() for word in (f"--{name}", *values)]
    head, needs = f"#!/usr/bin/env bash\n# {' '.join(remark.split())}\n", ""
    if "NNODES" in flags:
        needs += "".join(f': "${{{name}:?{what}}}"\n' for name, what in PER_NODE.items())
    needs += "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    recipe = read_recipe(path, {**os.environ, **variables})
    if path.suffix in CONFIGURATION:
        started = f"exec {' '.join(recipe.command)} {shlex.join([str(path.resolve()), *words])}"
        return f'{head}{needs}{started} "$@"\n'
    if out.resolve().parent != path.resolve().parent and re.search(r"\$0|BASH_SOURCE", recipe.text):
        raise ValueError(
            f"{path} finds its folder by its own name: write {path.with_name(out.name)}"
        )
    # Behind the comments on top, which may be a scheduler's.
    text = re.sub(r"\A#!.*\n", "", _with_flags(recipe, given))
    code = re.sub(r"\A(?:#.*\n)*", "", text)
    text = f"{head}{text.removesuffix(code)}{needs}{code}"
    commands = read_text(text, out)
    if problems := "; ".join(_problems(commands, path, words, variables)):
        raise ValueError(problems)
    old, new = ({f.name: f.values for f in r.flags} for r in (recipe, only(commands)))
    if new != old | given:
        raise ValueError(
            f"{path}:{recipe.line}: its flags would be read differently; change it by hand"
        )
    return text


def _with_flags(recipe: Recipe, given: Mapping[str, tuple[str, ...]]) -> str:
    """Return a script's text with flags in place of those of their names, or behind the last."""
    text, patches = recipe.text, list[tuple[int, int, str]]()
    ends = [s.end for flag in recipe.flags for s in (flag.span, *flag.value_spans) if s]
    for name, values in given.items():
        flag, words = recipe.flag(name), shlex.join([f"--{name}", *values])
        spans = [flag.span, *flag.value_spans] if flag else []
        if written := [span for span in spans if span]:
            patches.append((written[0].start, written[-1].end, words))
        elif ends:
            patches.append((max(ends), max(ends), f" \\\n    {words}"))
    for start, end, words in sorted(patches, reverse=True):
        text = text[:start] + words + text[end:]
    return text


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
