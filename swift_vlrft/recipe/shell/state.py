"""The known state of a shell at one point of its script, and the join of two states."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from swift_vlrft.recipe.shell.tree import Node, Note, Span

OF_BASH = re.compile(
    r"HOSTNAME|HOSTTYPE|SHELL|TERM|S?RANDOM|SECONDS|EPOCH\w+|LINENO|E?UID|PPID|OSTYPE|MACHTYPE"
    r"|OLDPWD|REPLY|OPTARG|OPTIND|FUNCNAME|PIPESTATUS|MAPFILE|COPROC|SHLVL|BASH\w+|_"
)
"""Variables that bash sets."""

May: TypeAlias = frozenset[str] | None
"""Flags that a text which was not read may hold, "" where it may begin with no flag; None: any."""
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Value:
    """One argument as the command would get it; not ``known``: as it is written in the file.

    ``vanishes``: written without quotes and not set, so nothing unless it is set elsewhere. Of a
    piece of an argument: ``quoted``, or ``listed``, an item of "$@" or "${ARRAY[@]}".
    """

    text: str
    line: int
    known: bool = True
    span: Span | None = None
    may: May = NOTHING
    notes: tuple[Note, ...] = ()
    vanishes: bool = False
    quoted: bool = field(default=False, compare=False)
    listed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a variable gets its value: ``name`` and ``value`` of NAME=value in the file."""

    line: int
    name: Span
    value: Span


@dataclass(frozen=True, slots=True)
class Variable:
    """One value, those of an array, or none (not set). ``exported`` None: perhaps."""

    items: tuple[Value, ...] = ()
    array: bool = False
    exported: bool | None = False
    place: Assigned | None = None

    @property
    def known(self) -> bool:
        return all(item.known for item in self.items)

    @property
    def text(self) -> str | None:
        """The value of a variable that is set, is no array, and was read."""
        return self.items[0].text if self.items and self.known and not self.array else None


UNSET = Variable()


def unread(
    text: str, line: int, why: str, may: May = None, kind: str = "unread", vanishes: bool = False
) -> Value:
    """A value that is not known, and why."""
    why = f"{text} was not read: {why}" if kind == "unread" else why
    return Value(text, line, False, None, may, (Note(line, kind, why),), vanishes)


def notes_of(values: Iterable[Value]) -> tuple[Note, ...]:
    return tuple(dict.fromkeys(note for value in values for note in value.notes))


def flags_of(values: Sequence[Value]) -> May:
    """The flags that values may hold."""
    found, words = list[str](), list[str]()
    for value in values:
        if value.known:
            words += value.text.split()
        elif value.may == NOTHING and not value.vanishes:
            words.append("")
    for i, word in enumerate(words):
        if re.match(r"--?[A-Za-z]", word):
            found.append(word.partition("=")[0].lstrip("-").replace("-", "_"))
        elif i == 0:
            found.append("")
    return union([frozenset(found), *(value.may for value in values if not value.known)])


def union(all_of: Iterable[May]) -> May:
    found: frozenset[str] = NOTHING
    for may in all_of:
        if may is None:
            return None
        found |= may
    return found


@dataclass(slots=True)
class State:
    """``locals``: what the variables that the running function has for itself are outside of it;
    ``functions``: all that a name may stand for, None among them if it may be no function.
    ``lost``: why any variable may have any value since, where it is not assigned again.
    """

    variables: dict[str, Variable]
    arguments: tuple[Value, ...] | None
    folder: str | None
    functions: dict[str, tuple[Node | None, ...]] = field(default_factory=dict)
    locals: dict[str, Variable] = field(default_factory=dict)
    exports_all: bool | None = False
    lost: Note | None = None
    alive: bool = True

    def copy(self) -> State:
        return replace(
            self,
            variables=dict(self.variables),
            functions=dict(self.functions),
            locals=dict(self.locals),
        )

    def get(self, name: str) -> Variable:
        if (found := self.variables.get(name)) is not None:
            return found
        if self.lost is not None:
            return _unread(name, (self.lost,), None)
        return _unread(name, (), None) if OF_BASH.fullmatch(name) else UNSET

    def set(self, name: str, new: Variable) -> Variable:
        """``new.exported`` True exports; else it stays as it was."""
        exported = new.exported or self.exports_all
        exported = self.get(name).exported if exported is False else exported
        self.variables[name] = replace(new, exported=exported)
        return self.variables[name]

    def lose(self, note: Note) -> None:
        """Something that was not read may have set anything."""
        self.lost = note
        for name, old in self.variables.items():
            self.variables[name] = _unread(name, (note,), old.exported or None)

    def environment(self) -> Mapping[str, Variable]:
        """The environment of a program."""
        return {
            name: variable
            for name, variable in self.variables.items()
            if variable.exported is not False and variable.items and not variable.array
        }


def _unread(name: str, notes: tuple[Note, ...], exported: bool | None, may: May = None) -> Variable:
    return Variable((Value(f"${name}", 0, False, None, may, notes),), exported=exported)


def merged(states: Iterable[State], where: str, line: int) -> State | None:
    """What holds whichever of the states it is; None if none goes on."""
    found: State | None = None
    for state in states:
        if state.alive:
            found = _both(found, state, where, line) if found else state
    return found


def _both(a: State, b: State, where: str, line: int) -> State:
    def either(name: str, one: Variable, two: Variable) -> Variable:
        if one is two:
            return one
        exported = one.exported if one.exported == two.exported else None
        if one.array == two.array and _texts(one) == _texts(two):
            place = one.place if one.place == two.place else None
            return replace(one, exported=exported, place=place)
        notes = notes_of(v for variable in (one, two) if not variable.array for v in variable.items)
        if not notes:
            text = f"${name} was not read: it is set in the {where} of line {line}, which may not"
            notes = (Note(line, "unread", f"{text} run"),)
        return _unread(name, notes, exported, union([flags_of(one.items), flags_of(two.items)]))

    return State(
        variables={n: either(n, a.get(n), b.get(n)) for n in {**a.variables, **b.variables}},
        locals={
            n: either(n, a.locals.get(n) or a.get(n), b.locals.get(n) or b.get(n))
            for n in {**a.locals, **b.locals}
        },
        arguments=a.arguments if a.arguments == b.arguments else None,
        folder=a.folder if a.folder == b.folder else None,
        functions={
            n: (*dict.fromkeys((*a.functions.get(n, (None,)), *b.functions.get(n, (None,)))),)
            for n in {**a.functions, **b.functions}
        },
        exports_all=a.exports_all if a.exports_all == b.exports_all else None,
        lost=a.lost or b.lost,
    )


def _texts(variable: Variable) -> list[tuple[str, bool, May]]:
    return [(item.text, item.known, item.may) for item in variable.items]
