"""Let bash itself read a script, for `vlrft check --run` and `vlrft plan --run`.

    for N in 1 2; do swift rlhf --model m --learning_rate ${N}e-6; done     two recipes

restricted.py has bash reach its commands; here they become recipes, as reader.py's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swift_vlrft.recipe.reader import (
    CONFIGURATION,
    Flag,
    Recipe,
    RecipeError,
    read_file,
    read_recipes,
    recipe_of,
)
from swift_vlrft.recipe.restricted import MARK, Started, make_inert, started
from swift_vlrft.recipe.script import Script
from swift_vlrft.recipe.tree import Note
from swift_vlrft.recipe.words import Value, Variable

NOT_READ = ("bash", "sh", "sbatch", "ssh", "xargs", "eval", "source", ".")
"""Their commands are not followed."""


def run_recipes(
    path: str | Path,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> list[Recipe]:
    """Return every command that bash reaches: in each turn of a loop, in the branch it takes, in a
    function that it calls. Nothing in them can be edited. Otherwise as ``reader.read_recipes``.

    RecipeError also where bash cannot run the script, or reaches no command.
    """
    path = Path(path)
    text = read_file(path)
    if path.suffix in CONFIGURATION:
        return read_recipes(path, environment, arguments)
    caller = os.environ if environment is None else environment
    inert = make_inert(text, str(path))
    commands, notes = started(inert, str(path), caller, arguments)
    notes = [*inert.notes, *notes]
    recipes: list[Recipe] = []
    moved = sourced = False
    for command in commands:
        begins = map(os.path.basename, command.words[:3])  # nohup bash FILE
        name, added = next((w for w in begins if w in ("bash", "sh")), command.words[0]), []
        if name == "cd":
            moved = True
        elif name not in NOT_READ:
            added = list(_recipes(command, path, text, moved, sourced, frozenset(inert.written)))
        if not added and (name in NOT_READ or MARK in name):
            shown = name.replace(MARK, "$(...)")
            notes.append(Note(command.line, "unread", f"{shown} is not followed under --run"))
            sourced = sourced or name in ("source", ".", "eval")
        recipes += added
    notes = sorted(dict.fromkeys(notes), key=lambda note: note.line)
    if not recipes:
        why = "; ".join(f"line {note.line}: {note.text}" for note in notes[-3:])
        raise RecipeError(
            f"{path}: bash runs to its end and starts no `swift` or `megatron`"
            + (why and f". {why}")
        )
    for recipe in recipes:
        recipe.notes += notes
    return recipes


def _recipes(
    command: Started, path: Path, text: str, moved: bool, sourced: bool, written: frozenset[str]
) -> Iterator[Recipe]:
    script = Script({})
    script.variables = {
        name: Variable(replace(_value(value, command.line), notes=()), exported=True)
        for name, value in command.environment.items()
    }
    script.program([_value(word, command.line) for word in command.words])
    for inner in script.commands:
        inner.made, inner.folder = written, None if moved else inner.folder
        recipe = recipe_of(inner, path)
        recipe.lost |= sourced
        recipe.text = text
        recipe.notes = [replace(note, line=command.line) for note in recipe.notes]
        recipe.flags = [_placed(flag, text, command.line) for flag in recipe.flags]
        yield recipe


def _value(text: str, line: int) -> Value:
    """A word that bash made, with ``MARK`` where a program would have printed something."""
    if MARK not in text:
        return Value(text, line)
    shown = text.replace(MARK, "$(...)")
    note = Note(line, "unread", f"{shown} is not read: its value is known only to a program")
    return Value(shown, line, False, None, (note,))


def _placed(flag: Flag, text: str, line: int) -> Flag:
    """Give the flag the line where it is written: below its command, else anywhere, else there."""
    word = re.compile(rf"(?<![\w-])--{re.escape(flag.name).replace('_', '[-_]')}(?![\w-])")
    places = [at for at, content in enumerate(text.split("\n"), 1) if word.search(content)]
    at = next((at for at in places if at >= line), places[0] if places else line)
    return replace(flag, line=at)
