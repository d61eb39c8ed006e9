"""The commands that bash runs itself and that change what later ones see."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from swift_vlrft.recipe.shell.expand import braced
from swift_vlrft.recipe.shell.state import (
    NOTHING,
    UNSET,
    Assigned,
    Value,
    Variable,
    flags_of,
    notes_of,
    unread,
)
from swift_vlrft.recipe.shell.words import ASSIGNMENT, NAME, Note, Part, Span, Word

if TYPE_CHECKING:
    from swift_vlrft.recipe.shell.shell import Shell

LOCAL = ("local", "declare", "typeset")
DECLARES = ("export", "readonly", *LOCAL)
SUCCEEDS = (*DECLARES, "set", "shopt", "echo", "true", ":")
SILENT = re.compile(
    r"\[|test|:|true|false|echo|printf|trap|wait|kill|jobs|umask|ulimit|type|hash|times|pwd|dirs"
    r"|history|logout|disown|suspend|enable|help|alias|unalias|complete"
)
"""They run nothing that is of use here."""
ENVIRONMENTS = re.compile(
    r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|\.?bashrc|\.?bash_profile|\.?profile|nvm\.sh"
    r"|set_env\.sh|setvars\.sh|modules?\.sh|lmod\.sh)\b"
)
HOOKS = re.compile(r"\b(?:conda|mamba|micromamba|ssh-agent|pyenv|direnv|modulecmd|brew|starship)\b")
"""Scripts and hooks that switch an environment on: PATH and the like, no setting of a run."""


def builtin(shell: Shell, name: str, words: Sequence[Word], values: list[Value]) -> bool:
    """Run it; False where it is none of bash's own."""
    line = values[0].line
    if name in DECLARES:
        _declare(shell, name, words[1:], line)
    elif name in SETS or (name in SET_BY and [v.text for v in values[1:2]] == [SET_BY[name]]):
        for value in values[1:]:
            shell.unknown(value.text, line, name)
            if not value.known and not value.vanishes:
                shell.lose(Note(line, "unread", f"`{name} {value.text}` was not read"))
    elif name in RUN:
        RUN[name](shell, values[1:], line)
    else:
        if name in ("[", "test"):
            asks(shell, words)
        return SILENT.fullmatch(name) is not None
    return True


def asks(shell: Shell, words: Iterable[Word]) -> None:
    """A condition on variables."""
    shell.asked.update(part.name for word in words for part in word.parts)


def assign(shell: Shell, word: Word, match: re.Match[str], exported: bool = False) -> Variable:
    """Carry out NAME=VALUE, NAME+=VALUE, NAME=(...) or NAME[...]=VALUE."""
    name, index, adds = match[1], match[2], match[3] == "+"
    before = shell.state.get(name) if adds else UNSET
    place = _place(word, match)
    items = [v for item in word.array or () for v in shell.expand(item) if not v.vanishes]
    if index or any(re.match(r"\[.*\]\+?=", item.text) for item in items):
        why = f"${name} was not read: its items are set one by one"
        variable = Variable((unread(f"${name}", word.line, why),))
    elif word.array is not None:
        variable = Variable((*before.items, *items), True, False, place)
    else:
        asked, shell.asked = shell.asked, {*shell.asked, name}  # A="$A more" needs no A
        value = shell.joined(word, _behind(word, match.end()))
        shell.asked = asked
        variable = _grown(name, before, value, None if before.items else place)
    shell.used.discard(name)
    if name in shell.references:
        text = f"{name} stands for another variable, and which was not read"
        shell.lose(Note(word.line, "unread", text))
    return shell.state.set(name, replace(variable, exported=exported))


def _behind(word: Word, at: int) -> list[Part]:
    """The parts of the value: what stands before it is plain text."""
    first = word.parts[0]
    return [replace(first, text=first.text[at:]), *word.parts[1:]]


def _grown(name: str, before: Variable, value: Value, place: Assigned | None) -> Variable:
    if not before.items:
        return Variable((value,), False, False, place)
    if before.array:
        why = f"${name} was not read: its items are set one by one"
        return Variable((unread(f"${name}", value.line, why),))
    old = before.items[0]
    both = (old, value)
    if old.known and value.known:
        return Variable((replace(value, text=old.text + value.text),))
    may = flags_of(both)
    return Variable((Value(f"${name}", value.line, False, None, may, notes_of(both)),))


def _place(word: Word, match: re.Match[str]) -> Assigned | None:
    if word.span is None:
        return None
    start, end = word.span.start, word.span.end
    name = Span(start, start + len(match[1]))
    return Assigned(word.line, name, Span(start + match.end(), end, word.span.literal))


def _declare(shell: Shell, name: str, words: Sequence[Word], line: int) -> None:
    """export, declare ...: -x exports, and what else options do to a value is not followed."""
    options = ""
    for word in words:
        if match := ASSIGNMENT.match(word.text):
            _own(shell, name, options, match[1])
            assign(shell, word, match)
            if braced(word):
                shell.unknown(match[1], line, f"{name} {word.text}")
            _options(shell, name, options, match[1], line)
            continue
        for value in shell.expand(word):
            inner = ASSIGNMENT.match(value.text)
            variable = inner[1] if inner else value.text
            if value.known and value.text[:1] in ("-", "+"):
                options += value.text
            elif NAME.fullmatch(variable):
                _own(shell, name, options, variable)
                if inner:
                    new = replace(value, text=value.text[inner.end() :], span=None)
                    shell.state.set(variable, Variable((new,)))
                _options(shell, name, options, variable, line)
            elif not value.known and not value.vanishes:
                text = f"`{name} {value.text}` may set any variable: it was not read"
                shell.lose(Note(line, "unread", text))


def _own(shell: Shell, name: str, options: str, variable: str) -> None:
    """A variable that a function has for itself, where it is new."""
    new = name in LOCAL and shell.inside and "g" not in options
    if not new or variable in shell.state.locals:
        return
    outside = shell.state.locals[variable] = shell.state.get(variable)
    if outside.items and outside.exported is not False:
        shell.unknown(variable, 0, name)  # a program still sees the one outside
    else:
        shell.state.variables[variable] = UNSET


def _options(shell: Shell, name: str, options: str, variable: str, line: int) -> None:
    if name != "export" and "n" in options:
        shell.references.add(variable)
    if name != "export" and set(options) & set("ilunA") and not options.startswith("+"):
        shell.unknown(variable, line, f"{name} {options}")
    current = shell.state.get(variable)
    if name == "export":
        current = replace(current, exported="n" not in options)
    elif "x" in options:
        current = replace(current, exported=options.startswith("-"))
    if current is not UNSET:
        shell.state.variables[variable] = current


def _unset(shell: Shell, values: Sequence[Value], line: int) -> None:
    if any(value.text == "-f" for value in values):
        return
    for value in values:
        if not value.known:
            shell.lose(Note(line, "unread", f"`unset {value.text}` was not read"))
        elif "[" in value.text:
            shell.unknown(value.text.partition("[")[0], line, "unset")
        elif not value.text.startswith("-"):
            shell.state.variables[value.text] = UNSET


def _let(shell: Shell, values: Sequence[Value], line: int) -> None:
    for value in values:
        shell.changes(value.text, line)


def _set(shell: Shell, values: Sequence[Value], line: int) -> None:
    rest = list(values)
    while rest and rest[0].known and rest[0].text[:1] in ("-", "+"):
        text = rest.pop(0).text
        if text == "--":
            break
        on, option = text[0] == "-", rest.pop(0).text if text.endswith("o") and rest else ""
        if "a" in text or option == "allexport":
            shell.state.exports_all = on
        if "f" in text or option == "noglob":
            shell.state.globs = not on
    else:
        if not rest:
            return
    known = all(value.known or value.may == NOTHING for value in rest)
    shell.state.arguments = tuple(v for v in rest if not v.vanishes) if known else None


def _shopt(shell: Shell, values: Sequence[Value], line: int) -> None:
    if any("glob" in v.text or not v.known for v in values):
        shell.state.globs = False


def _shift(shell: Shell, values: Sequence[Value], line: int) -> None:
    arguments = shell.state.arguments
    count = values[0].text if values else "1"
    if arguments is None or not count.isdigit():
        shell.state.arguments = None
    elif int(count) <= len(arguments):
        shell.state.arguments = arguments[int(count) :]


def _cd(shell: Shell, values: Sequence[Value], line: int) -> None:
    targets = [v for v in values if not re.fullmatch(r"-[LPe@]+|--", v.text)]
    folder, shell.state.folder = shell.state.folder, None
    home = shell.state.get("HOME").text
    if targets and targets[0].known and targets[0].text != "-":
        found = os.path.normpath(os.path.join(folder or "", targets[0].text))
        if os.path.isabs(found) and os.path.isdir(found):
            shell.state.folder = found
    elif not targets:
        shell.state.folder = home


def _source(shell: Shell, values: Sequence[Value], line: int) -> None:
    words = " ".join(value.text for value in values)
    note = Note(line, "unread", f"`source {words}` may set variables; it was not read")
    text = _file(shell, values[0]) if values else None
    if values and ENVIRONMENTS.search(values[0].text):
        shell.note(note)
    elif text is None:
        shell.lose(note)
    else:
        arguments = shell.state.arguments
        shell.state.arguments = tuple(values[1:]) or arguments
        shell.run_text(text, line)
        shell.state.arguments = arguments


def _file(shell: Shell, value: Value) -> str | None:
    if not value.known or not (os.path.isabs(value.text) or shell.state.folder):
        return None
    path = Path(shell.state.folder or "/", value.text)
    try:
        return path.read_text() if path.is_file() else None
    except (OSError, UnicodeError):
        return None


def _eval(shell: Shell, values: Sequence[Value], line: int) -> None:
    text = " ".join(value.text for value in values if not value.vanishes)
    if all(value.known or value.vanishes for value in values):
        shell.run_text(text, line)
    elif HOOKS.search(text):
        shell.note(Note(line, "unread", f"`eval {text}` was not read"))
    else:
        shell.lose(Note(line, "unread", f"`eval {text}` may do anything; it was not read"))


SETS = ("read", "getopts", "mapfile", "readarray")
SET_BY = {"printf": "-v", "wait": "-p"}
"""Each of their arguments that is a name is a variable that they set."""
RUN: dict[str, Callable[[Shell, Sequence[Value], int], None]] = {
    "unset": _unset,
    "let": _let,
    "set": _set,
    "shopt": _shopt,
    "shift": _shift,
    "cd": _cd,
    "pushd": _cd,
    "popd": lambda shell, values, line: _cd(shell, [Value("-", line)], line),
    "source": _source,
    ".": _source,
    "eval": _eval,
}
"""What changes the state, each with its arguments and its line."""
