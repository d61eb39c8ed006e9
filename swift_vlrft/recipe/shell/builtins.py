"""The commands that bash runs itself and that change what later ones see."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from swift_vlrft.recipe.shell.expand import changes, choices_of, expand, joined
from swift_vlrft.recipe.shell.reader import Reader
from swift_vlrft.recipe.shell.state import NOTHING, Assigned, Value, Variable, flags_in, union
from swift_vlrft.recipe.shell.words import ASSIGNMENT, Note, Span, Word

NAME = re.compile(r"[A-Za-z_]\w*")
SUCCEEDS = re.compile(r"export|declare|typeset|local|readonly|set|shopt|echo|true|:")
OWN = ("local", "declare", "typeset")
DECLARES = ("export", "readonly", *OWN)
SILENT = re.compile(
    r"\[|test|:|true|false|echo|printf|trap|wait|kill|jobs|umask|ulimit|type|hash|let|times|pwd|dirs"
    r"|history|logout|disown|suspend|getopts|enable|help|alias|unalias|complete"
)
"""They run nothing that is of use here; those that set something are handled before."""
ENVIRONMENTS = re.compile(
    r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|\.?bashrc|\.?bash_profile|\.?profile|nvm\.sh"
    r"|set_env\.sh|setvars\.sh|modules?\.sh|lmod\.sh)\b"
)
HOOKS = re.compile(r"\b(?:conda|mamba|micromamba|ssh-agent|pyenv|direnv|modulecmd|brew|starship)\b")
"""Scripts and hooks that switch an environment on: PATH and the like, no setting of a run."""


def builtin(shell: Reader, name: str, words: Sequence[Word], values: list[Value]) -> bool:
    """Run it; False where it is none of bash's own."""
    if name in DECLARES:
        _declare(shell, name, words[1:], values[0].line)
        return True
    if name in RUN:
        RUN[name](shell, values[1:], values[0].line)
        return True
    if name in ("[", "test"):
        asks(shell, words)
    return bool(SILENT.fullmatch(name))


def assign(shell: Reader, word: Word, match: re.Match[str], exported: bool = False) -> Variable:
    """Carry out NAME=VALUE, NAME+=VALUE, NAME=(...) or NAME[...]=VALUE."""
    name, index, adds = match[1], match[2], match[3] == "+"
    before = shell.state.get(name)
    place = _place(word, match)
    if word.array is not None:
        items = tuple(v for item in word.array for v in expand(shell, item) if not v.vanishes)
        if any(re.match(r"\[.*\]\+?=", item.text) for item in items):
            variable = _odd(name, word.line)
        elif adds and before is not None and not isinstance(before.value, tuple):
            found = union([before.flags(), flags_in(item.text for item in items)])
            value = None if before.value is None else (Value(before.value, word.line), *items)
            variable = Variable(value, False, place, before.notes, found)
        else:
            old = before.value if adds and before and isinstance(before.value, tuple) else ()
            variable = Variable((*old, *items), False, place)
    elif index:
        variable = _odd(name, word.line)
    else:
        variable = _scalar(shell, name, word, match.end(), adds, place)
    shell.used.discard(name)
    if name in shell.state.references:
        text = f"{name} stands for another variable, and which was not read"
        lose(shell, Note(word.line, "unread", text))
    shell.state.set(name, replace(variable, exported=exported))
    return shell.state.variables[name]


def asks(shell: Reader, words: Iterable[Word]) -> None:
    """A condition on variables."""
    parts = [part for word in words for part in word.parts if part.kind == "variable"]
    shell.asked.update(name[0] for part in parts if (name := NAME.match(part.text)))


def _odd(name: str, line: int) -> Variable:
    notes = (Note(line, "unread", f"${name} was not read: its items are set one by one"),)
    return Variable(None, notes=notes, may=None)


def _scalar(
    shell: Reader, name: str, word: Word, at: int, adds: bool, place: Assigned | None
) -> Variable:
    first = replace(word.parts[0], text=word.parts[0].text[at:])
    behind = replace(word, parts=[first, *word.parts[1:]])
    asked, shell.asked = shell.asked, {*shell.asked, name}  # A="$A more" needs no A
    value = joined(shell, replace(behind, text=word.text[at:]))
    shell.asked = asked
    before = shell.state.get(name) if adds else None
    if before is None:
        return Variable(value.text if value.known else None, False, place, value.notes, value.may)
    if isinstance(before.value, tuple):
        return _odd(name, word.line)
    if before.value is None or not value.known:
        may = union([before.flags(), flags_in(value.text.split()), value.may])
        return Variable(None, False, None, (*before.notes, *value.notes), may)
    return Variable(before.value + value.text, False, None)


def unknown(shell: Reader, name: str, line: int, by: str) -> None:
    if NAME.fullmatch(name):
        shell.used.discard(name)
        notes = (Note(line, "unread", f"${name} was not read: `{by}` sets it"),)
        shell.state.set(name, Variable(None, notes=notes, may=None))


def _declare(shell: Reader, name: str, words: Sequence[Word], line: int) -> None:
    options = ""
    for word in [replace(w, parts=p) for w in words for p in choices_of(w)]:
        match = word.assigns
        if match is None:
            for value in expand(shell, word):
                if value.text[:1] in ("-", "+") and value.known:
                    options += value.text
                elif inner := ASSIGNMENT.match(value.text):
                    new = value.text[inner.end() :] if value.known else None
                    variable = Variable(new, notes=value.notes)
                    _declared(shell, name, options, inner[1], variable, line)
                elif not value.known and not value.vanishes:
                    text = f"`{name} {value.text}` may set any variable: it was not read"
                    lose(shell, Note(line, "unread", text))
                elif NAME.fullmatch(value.text):
                    _declared(shell, name, options, value.text, None, line)
            continue
        odd = any(letter in options for letter in "ilunA") and not options.startswith("+")
        if name in OWN:
            _own(shell, options, match[1])
        variable = assign(shell, word, match)
        if "n" in options and name != "export":
            shell.state.references |= {match[1]}
        if odd and not (name == "export" and options == "-n"):
            unknown(shell, match[1], line, f"{name} {options}")
            variable = shell.state.variables[match[1]]
        _declared(shell, name, options, match[1], variable, line)


def _own(shell: Reader, options: str, variable: str) -> bool:
    """A variable that a function has for itself; whether it is new."""
    if not shell.inside or "g" in options or variable in shell.state.locals:
        return False
    shell.state.locals[variable] = shell.state.get(variable)
    return True


def _declared(
    shell: Reader, name: str, options: str, variable: str, new: Variable | None, line: int
) -> None:
    fresh = name in OWN and _own(shell, options, variable)
    if new is not None:
        shell.state.set(variable, new)
    elif fresh:
        outside = shell.state.locals[variable]
        if outside is not None and outside.exported is not False:
            unknown(shell, variable, line, name)  # a program still sees the one outside
        else:
            shell.state.unset(variable)
    exports: bool | None = None
    if name == "export":
        exports = "n" not in options
    elif "x" in options:
        exports = options.startswith("-")
    current = shell.state.get(variable)
    if exports is not None and current is not None:
        shell.state.variables[variable] = replace(current, exported=exports)
    elif exports:
        shell.state.exported_later |= {variable}


def lose(shell: Reader, note: Note) -> None:
    shell.note(note)
    shell.state.lose(note)


def _unset(shell: Reader, values: Sequence[Value], line: int) -> None:
    names = [value for value in values if not value.text.startswith("-")]
    if any(value.text == "-f" for value in values):
        return
    for value in names:
        if not value.known:
            lose(shell, Note(line, "unread", f"`unset {value.text}` was not read"))
        elif "[" in value.text:
            unknown(shell, value.text.partition("[")[0], line, "unset")
        else:
            shell.state.unset(value.text)


def _read(shell: Reader, values: Sequence[Value], line: int) -> None:
    for value in values:
        unknown(shell, value.text, line, "read")
    unknown(shell, "REPLY", line, "read")


def _mapfile(shell: Reader, values: Sequence[Value], line: int) -> None:
    for value in values:
        unknown(shell, value.text, line, "mapfile")


def _printf(shell: Reader, values: Sequence[Value], line: int) -> None:
    for option, value in zip(values, values[1:], strict=False):
        if option.text == "-v":
            unknown(shell, value.text, line, "printf -v")
        break


def _wait(shell: Reader, values: Sequence[Value], line: int) -> None:
    for option, value in zip(values, values[1:], strict=False):
        if option.text == "-p":
            unknown(shell, value.text, line, "wait -p")


def _let(shell: Reader, values: Sequence[Value], line: int) -> None:
    for value in values:
        changes(shell, value.text, line)


def _set(shell: Reader, values: Sequence[Value], line: int) -> None:
    rest = list(values)
    while rest and re.match(r"[-+]", rest[0].text) and rest[0].known:
        text = rest.pop(0).text
        on = text[0] == "-"
        if text == "--":
            break
        if text[1:] in ("o", "eo", "euo", "eux", "ueo", "euxo", "uo") and rest:
            option = rest.pop(0).text
        else:
            option = ""
        if "a" in text[1:].replace("allexport", "") or option == "allexport":
            shell.state.exports_all = on
        if "u" in text[1:] or option == "nounset":
            shell.state.strict = on
        if "f" in text[1:] or option == "noglob":
            shell.state.globs = not on
    else:
        if not rest:
            return
    known = all(value.known or value.may == NOTHING for value in rest)
    shell.state.arguments = tuple(v for v in rest if not v.vanishes) if known else None


def _shopt(shell: Reader, values: Sequence[Value], line: int) -> None:
    if any("glob" in v.text or not v.known for v in values):
        shell.state.globs = False


def _shift(shell: Reader, values: Sequence[Value], line: int) -> None:
    arguments = shell.state.arguments
    count = values[0].text if values else "1"
    if arguments is None or not count.isdigit():
        shell.state.arguments = None
    elif int(count) <= len(arguments):
        shell.state.arguments = arguments[int(count) :]


def _cd(shell: Reader, values: Sequence[Value], line: int) -> None:
    targets = [v for v in values if not re.fullmatch(r"-[LPe@]+|--", v.text)]
    folder = shell.state.folder
    shell.state.folder = None
    home = shell.state.get("HOME")
    if not targets and home and isinstance(home.value, str):
        shell.state.folder = home.value
    elif targets and targets[0].known and targets[0].text != "-":
        found = os.path.normpath(os.path.join(folder or "", targets[0].text))
        if os.path.isabs(found) and os.path.isdir(found):
            shell.state.folder = found


def _popd(shell: Reader, values: Sequence[Value], line: int) -> None:
    shell.state.folder = None


def _source(shell: Reader, values: Sequence[Value], line: int) -> None:
    said = " ".join(value.text for value in values)
    note = Note(line, "unread", f"`source {said}` may set variables; it was not read")
    text = _file(shell, values[0]) if values else None
    if values and ENVIRONMENTS.search(values[0].text):
        shell.note(note)
    elif text is None or shell.depth > 8:
        lose(shell, note)
    else:
        saved = shell.state.arguments
        if values[1:]:
            shell.state.arguments = tuple(values[1:])
        shell.run_text(text, line)
        shell.state.arguments = saved


def _file(shell: Reader, value: Value) -> str | None:
    if not value.known or not (os.path.isabs(value.text) or shell.state.folder):
        return None
    path = Path(shell.state.folder or "/", value.text)
    try:
        return path.read_text() if path.is_file() else None
    except (OSError, UnicodeError):
        return None


def _eval(shell: Reader, values: Sequence[Value], line: int) -> None:
    text = " ".join(value.text for value in values if not value.vanishes)
    if all(value.known or value.vanishes for value in values):
        shell.run_text(text, line)
    elif HOOKS.search(text):
        shell.note(Note(line, "unread", f"`eval {text}` was not read"))
    else:
        lose(shell, Note(line, "unread", f"`eval {text}` may do anything; it was not read"))


def _place(word: Word, match: re.Match[str]) -> Assigned | None:
    if word.span is None:
        return None
    start, end = word.span.start, word.span.end
    name = Span(start, start + len(match[1]))
    return Assigned(word.line, name, Span(start + match.end(), end, word.span.literal))


RUN: dict[str, Callable[[Reader, Sequence[Value], int], None]] = {
    "unset": _unset,
    "read": _read,
    "getopts": _read,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "printf": _printf,
    "wait": _wait,
    "let": _let,
    "set": _set,
    "shopt": _shopt,
    "shift": _shift,
    "cd": _cd,
    "pushd": _cd,
    "popd": _popd,
    "source": _source,
    ".": _source,
    "eval": _eval,
}
"""What changes the state, each with its arguments and its line."""
