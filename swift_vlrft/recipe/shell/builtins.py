"""Builtins of bash that change the state for later commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from swift_vlrft.recipe.shell.expand import Expander, braced
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
from swift_vlrft.recipe.shell.tree import ASSIGNMENT, NAME, Node, Span

Arguments = Sequence[Value]

LOCAL = ("local", "declare", "typeset")
DECLARES = ("export", "readonly", *LOCAL)
SUCCEEDS = (*DECLARES, "set", "shopt", "echo", "true", ":")
SETS = ("read", "getopts", "mapfile", "readarray", "printf -v", "wait -p")
"""Builtins that set every variable that is among their arguments."""
SILENT = re.compile(
    r"\[|test|:|true|false|echo|printf|trap|wait|kill|jobs|umask|ulimit|type|hash|times|pwd|dirs"
    r"|history|logout|disown|suspend|enable|help|alias|unalias|complete"
)
"""Commands that do not matter here."""
ENVIRONMENTS = re.compile(
    r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|\.?bashrc|\.?bash_profile|\.?profile|nvm\.sh"
    r"|set_env\.sh|setvars\.sh|modules?\.sh|lmod\.sh)\b"
)
HOOKS = re.compile(r"\b(?:conda|mamba|micromamba|ssh-agent|pyenv|direnv|modulecmd|brew|starship)\b")
"""Scripts and hooks that switch an environment on: PATH and the like, no setting of a run."""


def builtin(shell: Expander, name: str, words: Sequence[Node], values: list[Value]) -> bool:
    """Run a builtin; False if the command is not one."""
    line, arguments = values[0].line, values[1:]
    if name in DECLARES:
        declare(shell, name, words[1:], line)
    elif name in SETS or " ".join(value.text for value in values[:2]) in SETS:
        for value in arguments:
            shell.unknown(value.text, line, name)
            if not value.known and not value.vanishes:
                shell.lose(line, f"`{name} {value.text}` was not read")
    elif name in RUN:
        RUN[name](shell, arguments, line)
    else:
        if name in ("[", "test"):  # what a condition tests may be missing
            shell.tested.update(parameters(words))
        return SILENT.fullmatch(name) is not None
    return True


def parameters(words: Iterable[Node]) -> Iterator[str]:
    """The names of all variables in words."""
    return (part.Param.Value for word in words for part in word.under("ParamExp"))


def assign(shell: Expander, node: Node, exported: bool = False) -> Variable:
    """Carry out NAME=VALUE, NAME+=VALUE, NAME=(...) or NAME[...]=VALUE."""
    name, line, elements = node.Name.Value, node.line, node.Array and node.Array.Elems
    before = shell.state.get(name).items if node.Append else ()
    arrays = node.Append and shell.state.get(name).array
    items = [v for e in elements for v in shell.expand(e.Value) if not v.vanishes]
    if node.Index or any(element.Index for element in elements) or (arrays and not node.Array):
        variable = Variable((unread(f"${name}", line, "its items are set one by one"),))
    elif node.Array:
        variable = Variable((*before, *items), True, False, _place(node))
    else:
        tested, shell.tested = shell.tested, {*shell.tested, name}  # A="$A more" needs no A
        value = shell.joined(node.Value, node.Pos.at) if node.Value else Value("", line)
        shell.tested = tested
        both = (*before, value)
        if before and all(one.known for one in both):
            value = replace(value, text="".join(one.text for one in both))
        elif before:
            value = Value(f"${name}", line, False, None, flags_of(both), notes_of(both))
        variable = Variable((value,), False, False, None if before else _place(node))
    shell.used.discard(name)
    if name in shell.references:
        shell.lose(line, f"{name} stands for another variable, and which was not read")
    return shell.state.set(name, replace(variable, exported=exported))


def _place(node: Node) -> Assigned | None:
    if node.inner:
        return None
    end = Span(node.End.at, node.End.at)
    value = node.Value.span if node.Value else node.Array.span if node.Array else end
    return Assigned(node.line, Span(node.Name.Pos.at, node.Name.End.at), value)


def declare(shell: Expander, name: str, words: Iterable[Node], line: int) -> None:
    """export, declare ...: -x exports, and what else options do to a value is not followed."""
    options = ""
    for word in words:
        given = [Value(word.Name.Value, line)] if word.Name else shell.expand(word.Value or word)
        for value in given:
            inner = ASSIGNMENT.match(value.text)
            variable = inner[1] if inner else value.text
            if value.known and value.text[:1] in ("-", "+"):
                options += value.text
            elif NAME.fullmatch(variable):
                _localize(shell, name, options, variable)
                if word.Name and not word.Naked:
                    assign(shell, word)
                    if word.Value and braced(word.Value):
                        shell.unknown(variable, line, f"{name} {word.text}")
                elif inner:
                    new = replace(value, text=value.text[inner.end() :], span=None)
                    shell.state.set(variable, Variable((new,)))
                _options(shell, name, options, variable, line)
            elif not value.known and not value.vanishes:
                shell.lose(line, f"`{name} {value.text}` may set any variable: it was not read")


def _localize(shell: Expander, name: str, options: str, variable: str) -> None:
    """Declare a local variable of the running function, if it is new."""
    new = name in LOCAL and shell.inside and "g" not in options
    if new and variable not in shell.state.locals:
        outside = shell.state.locals[variable] = shell.state.get(variable)
        shell.state.variables[variable] = Variable(exported=outside.exported)
        if outside.items and outside.exported is not False:  # a program still sees that one
            shell.state.variables[variable] = outside
            shell.unknown(variable, 0, name)


def _options(shell: Expander, name: str, options: str, variable: str, line: int) -> None:
    exports = name == "export" and "n" not in options
    if name != "export" and set(options) & set("ilunA"):
        shell.references |= {variable} if "n" in options else set()
        shell.unknown(variable, line, f"{name} {options}")
    if name == "export" or "x" in options:
        exports |= options.startswith("-") and "x" in options
        current = shell.state.get(variable)
        shell.state.variables[variable] = replace(current, exported=exports)


def _unset(shell: Expander, values: Arguments, line: int) -> None:
    for value in values:
        if value.text == "-f":
            return
        if not value.known:
            shell.lose(line, f"`unset {value.text}` was not read")
        elif "[" in value.text:
            shell.unknown(value.text.partition("[")[0], line, "unset")
        elif not value.text.startswith("-"):
            shell.state.variables[value.text] = UNSET


def _let(shell: Expander, values: Arguments, line: int) -> None:
    for value in values:
        shell.changes(value.text, line)


def _set(shell: Expander, values: Arguments, line: int) -> None:
    rest = list(values)
    while rest and rest[0].known and rest[0].text[:1] in ("-", "+"):
        text = rest.pop(0).text
        if text == "--":
            break
        on, option = text[0] == "-", rest.pop(0).text if text.endswith("o") and rest else ""
        if "a" in text or option == "allexport":
            shell.state.exports_all = on
    else:
        if not rest:
            return
    known = all(value.known or value.may == NOTHING for value in rest)
    shell.state.arguments = tuple(v for v in rest if not v.vanishes) if known else None


def _shopt(shell: Expander, values: Arguments, line: int) -> None:
    if any("glob" in v.text or not v.known for v in values):
        shell.globs = False


def _shift(shell: Expander, values: Arguments, line: int) -> None:
    arguments = shell.state.arguments
    count = values[0].text if values else "1"
    if arguments is None or not re.fullmatch("[0-9]{1,9}", count):
        shell.state.arguments = None
    elif int(count) <= len(arguments):
        shell.state.arguments = arguments[int(count) :]


def _cd(shell: Expander, values: Arguments, line: int) -> None:
    targets = [v for v in values if not re.fullmatch(r"-[LPe@]+|--", v.text)]
    folder, shell.state.folder = shell.state.folder, None
    if not targets:
        shell.state.folder = shell.state.get("HOME").text
    elif targets[0].known and targets[0].text != "-":
        found = os.path.normpath(os.path.join(folder or "", targets[0].text))
        if os.path.isabs(found) and os.path.isdir(found):
            shell.state.folder = found


def _popd(shell: Expander, values: Arguments, line: int) -> None:
    shell.state.folder = None


def _source(shell: Expander, values: Arguments, line: int) -> None:
    words, text = " ".join(value.text for value in values), None
    why = f"`source {words}` may set variables; it was not read"
    if values and ENVIRONMENTS.search(values[0].text):
        shell.note(line, why)
        return
    try:
        if values and values[0].known:
            text = Path(shell.state.folder or "/nowhere", values[0].text).read_text()
    except (OSError, UnicodeError, ValueError):
        pass
    if text is None:
        shell.lose(line, why)
        return
    arguments = shell.state.arguments
    shell.state.arguments = tuple(values[1:]) or arguments
    shell.run_text(text, line)
    shell.state.arguments = arguments


def _eval(shell: Expander, values: Arguments, line: int) -> None:
    text = " ".join(value.text for value in values if not value.vanishes)
    if all(value.known or value.vanishes for value in values):
        shell.run_text(text, line)
    elif HOOKS.search(text):
        shell.note(line, f"`eval {text}` was not read")
    else:
        shell.lose(line, f"`eval {text}` may do anything; it was not read")


RUN: dict[str, Callable[[Expander, Arguments, int], None]] = {
    "unset": _unset,
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
