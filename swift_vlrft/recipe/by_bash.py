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

from swift_vlrft.recipe.flags import Flag
from swift_vlrft.recipe.lines import PROGRAM, commands_of
from swift_vlrft.recipe.reader import (
    CONFIGURATION,
    Recipe,
    RecipeError,
    read_file,
    read_recipes,
    recipes_of,
)
from swift_vlrft.recipe.restricted import MARK, make_inert, started
from swift_vlrft.recipe.script import Script
from swift_vlrft.recipe.tree import Mistake, Note, Span, parse
from swift_vlrft.recipe.words import Value, Variable
from swift_vlrft.recipe.wrappers import ENVIRONMENT, not_read


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
    try:
        statements, blanks = parse(text)
        straight = Script(caller, arguments)
        straight.run(statements)
        # What is noted of blanks, carriage returns and a byte order mark is mended here.
        meant = statements[0].source if statements else text
        meant = re.sub(r"(\\?)\r\n", r" \1\n", meant)
        meant = re.sub(r"^\ufeff|(?<!\\)\\\Z", " ", meant)
        inert, notes = make_inert(meant, str(path))
    except Mistake as mistake:
        raise RecipeError(f"{path}: {mistake}") from None
    except RecursionError:
        raise RecipeError(f"{path}: commands are nested too deeply for --run") from None
    commands, said = started(inert, str(path), caller, arguments)
    nodes = commands_of(statements)
    script = Script({})
    read = [note for c in straight.commands for w in c.words for note in (*c.notes, *w.notes)]
    unset = [note for note in read if note.kind in ("unset", "needed")]
    script.notes = [*notes, *said, *blanks, *unset]
    for command in commands:
        around = [node for node in nodes if node.line <= command.line <= node.End.line]
        programs = [w for n in around for w in n.Cmd.Args if PROGRAM.fullmatch(w.text)]
        command.line = (programs or around or [command])[0].line
        name = command.words[0]
        words = [_value(word, command.line) for word in command.words]
        script.variables = {
            variable: Variable(replace(_value(value, command.line), notes=()), exported=True)
            for variable, value in command.environment.items()
        }
        if name == "cd":
            script.folder = None
        elif name in ("source", ".", "eval"):
            if any(ENVIRONMENT.match(node.text) for node in around):
                continue
            script.lost = Note(command.line, "unread", f"{name} is not followed under --run")
            script.notes.append(script.lost)
        elif not script.program(words) and (
            why := not_read(" ".join(command.words).replace(MARK, "$(...)"))
        ):
            script.notes.append(Note(command.line, "unread", why))
    recipes = recipes_of(script, path, text, statements)
    for recipe in recipes:
        recipe.flags = [*_placed(recipe.flags, text, recipe.line)]
    return recipes


def _value(text: str, line: int) -> Value:
    """A word that bash made, with ``MARK`` where a program would have printed something."""
    if MARK not in text:
        return Value(text, line)
    shown = text.replace(MARK, "$(...)")
    note = Note(line, "unread", f"{shown} is not read: its value is known only to a program")
    return Value(shown, line, False, None, (note,))


def _placed(flags: Sequence[Flag], text: str, line: int) -> Iterator[Flag]:
    """Give flags the places where they are written: below their command, else anywhere."""
    code = re.sub(r"(?m)(?:^|(?<=\s))#.*", lambda comment: " " * len(comment[0]), text)
    start = sum(map(len, text.splitlines(keepends=True)[: line - 1]))
    seen = dict[str, int]()
    for flag in flags:
        name = re.escape(flag.option)
        word = re.compile(rf"(?<![\w-]){name.replace('_', '[-_]')}(?![\w-])")
        match = word.search(code, seen.get(flag.name, start)) or word.search(code)
        if match and flag.name:
            seen[flag.name] = match.end()
            at = text.count("\n", 0, match.start()) + 1
            yield replace(flag, line=at, span=Span(*match.span(), literal=False))
        else:
            yield replace(flag, line=line)
