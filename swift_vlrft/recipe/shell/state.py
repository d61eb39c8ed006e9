"""What is known of a shell at one point of its script, and of two ways to get there.

A variable is set to a value, set to one that was not read (``value`` None: it may also be unset),
or not set at all (absent).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from swift_vlrft.recipe.shell.words import Note, Span

if TYPE_CHECKING:
    from swift_vlrft.recipe.shell.grammar import Function

OF_BASH = re.compile(
    r"HOSTNAME|HOSTTYPE|SHELL|TERM|S?RANDOM|SECONDS|EPOCH\w+|LINENO|E?UID|PPID|OSTYPE|MACHTYPE"
    r"|OLDPWD|REPLY|OPTARG|OPTIND|FUNCNAME|PIPESTATUS|MAPFILE|COPROC|SHLVL|BASH\w+"
)
"""Set by bash itself."""

May: TypeAlias = frozenset[str] | None
"""Flags that a text which was not read may hold, "" where it may begin with no flag; None: any."""
NOTHING: frozenset[str] = frozenset()
NONE = (None,)


@dataclass(frozen=True, slots=True)
class Value:
    """One argument as the command would get it; not ``known``: as it is written in the file.

    ``vanishes``: written without quotes and not set, so nothing unless it is set elsewhere.
    """

    text: str
    line: int
    known: bool = True
    span: Span | None = None
    may: May = NOTHING
    notes: tuple[Note, ...] = ()
    vanishes: bool = False


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a variable gets its value: ``name`` and ``value`` of NAME=value in the file."""

    line: int
    name: Span
    value: Span


@dataclass(frozen=True, slots=True)
class Variable:
    """``exported`` None: perhaps. ``notes``: why the value is not known."""

    value: str | tuple[Value, ...] | None
    exported: bool | None = False
    place: Assigned | None = None
    notes: tuple[Note, ...] = ()
    may: May = NOTHING

    def same(self, other: Variable) -> bool:
        return self.exported == other.exported and _texts(self.value) == _texts(other.value)

    def flags(self) -> May:
        """The flags among its words."""
        if isinstance(self.value, str):
            return flags_in(self.value.split())
        if self.value is None:
            return self.may
        known = flags_in(v.text for v in self.value)
        return union([known, *(v.may for v in self.value if not v.known)])


def _texts(value: str | tuple[Value, ...] | None) -> object:
    return [(v.text, v.known) for v in value] if isinstance(value, tuple) else value


def flags_in(words: Iterable[str]) -> frozenset[str]:
    found = []
    for i, word in enumerate(words):
        if re.match(r"--?[A-Za-z]", word):
            found.append(word.partition("=")[0].lstrip("-").replace("-", "_"))
        elif i == 0:
            found.append("")
    return frozenset(found)


def union(all_of: Iterable[May]) -> May:
    found: frozenset[str] = NOTHING
    for may in all_of:
        if may is None:
            return None
        found |= may
    return found


@dataclass(slots=True)
class State:
    """``lost``: why any variable may have any value since, where it is not assigned again."""

    variables: dict[str, Variable]
    arguments: tuple[Value, ...] | None
    folder: str | None
    functions: dict[str, tuple[Function | None, ...]] = field(default_factory=dict)
    """What a name may stand for; None: perhaps for no function."""
    locals: dict[str, Variable | None] = field(default_factory=dict)
    """What the variables that the running function has for itself are outside of it."""
    removed: frozenset[str] = frozenset()
    exported_later: frozenset[str] = frozenset()
    perhaps_later: frozenset[str] = frozenset()
    references: frozenset[str] = frozenset()
    exports_all: bool | None = False
    strict: bool = False
    globs: bool = True
    lost: tuple[Note, ...] | None = None
    alive: bool = True

    def copy(self) -> State:
        return replace(
            self,
            variables=dict(self.variables),
            functions=dict(self.functions),
            locals=dict(self.locals),
        )

    def get(self, name: str) -> Variable | None:
        """None: not set."""
        if name in self.variables:
            return self.variables[name]
        if name in self.removed:
            return None
        if self.lost is not None:
            return Variable(None, None, notes=self.lost, may=None)
        if OF_BASH.fullmatch(name):
            return Variable(None, None, may=None)
        return None

    def set(self, name: str, new: Variable) -> None:
        """``new.exported`` True exports; else it stays as it was."""
        exported = new.exported or self.exports_all
        if exported is False:
            exported = self.exported(name)
        self.variables[name] = replace(new, exported=exported)

    def exported(self, name: str) -> bool | None:
        """Whether a program sees the variable, or would once it is set; None: perhaps."""
        if name in self.variables:
            return self.variables[name].exported
        if name in self.exported_later:
            return True
        return None if self.lost is not None or name in self.perhaps_later else False

    def unset(self, name: str) -> None:
        self.variables.pop(name, None)
        self.removed |= {name}
        self.exported_later -= {name}
        self.perhaps_later -= {name}

    def lose(self, note: Note) -> None:
        """Something that was not read may have set anything."""
        self.lost, self.removed = (note,), frozenset()
        for name, old in self.variables.items():
            self.variables[name] = Variable(None, old.exported or None, None, (note,), None)

    def environment(self) -> Mapping[str, Variable]:
        found = {k: v for k, v in self.variables.items() if v.exported is not False}
        return {k: v for k, v in found.items() if not isinstance(v.value, tuple)}


def merged(states: Iterable[State], where: str, line: int) -> State | None:
    """What holds whichever of the states it is; None where none goes on."""
    alive = [state for state in states if state.alive]
    if not alive:
        return None
    found = alive[0]
    for other in alive[1:]:
        found = _both(found, other, where, line)
    return found


def _both(a: State, b: State, where: str, line: int) -> State:
    variables = {}
    for name in {**a.variables, **b.variables}:
        one, two = a.get(name), b.get(name)
        if one is two and one is not None:
            variables[name] = one
        elif one is not None and two is not None and one.same(two) and one.value is not None:
            place = one.place if one.place == two.place else None
            variables[name] = replace(one, place=place)
        else:
            exported = {s.exported(name) for s in (a, b)}
            variables[name] = _either(name, one, two, exported, where, line)
    locals = {}
    for name in {**a.locals, **b.locals}:
        one, two = (s.locals.get(name) if name in s.locals else s.get(name) for s in (a, b))
        exported = {s.exported(name) for s in (a, b)}
        locals[name] = one if one is two else _either(name, one, two, exported, where, line)
    return State(
        variables=variables,
        locals=locals,
        arguments=a.arguments if a.arguments == b.arguments else None,
        folder=a.folder if a.folder == b.folder else None,
        functions={
            name: tuple(dict.fromkeys([*a.functions.get(name, NONE), *b.functions.get(name, NONE)]))
            for name in {**a.functions, **b.functions}
        },
        removed=frozenset(n for n in a.removed | b.removed if a.get(n) is None is b.get(n)),
        exported_later=a.exported_later & b.exported_later,
        perhaps_later=a.perhaps_later | b.perhaps_later | (a.exported_later ^ b.exported_later),
        references=a.references | b.references,
        exports_all=a.exports_all if a.exports_all == b.exports_all else None,
        strict=a.strict and b.strict,
        globs=a.globs and b.globs,
        lost=a.lost if a.lost is not None else b.lost,
    )


def _either(
    name: str,
    a: Variable | None,
    b: Variable | None,
    exported: set[bool | None],
    where: str,
    line: int,
) -> Variable:
    both = [variable for variable in (a, b) if variable is not None]
    notes = tuple(note for variable in both if variable.value is None for note in variable.notes)
    if not notes:
        text = f"${name} was not read: it is set in the {where} of line {line}, which may not run"
        notes = (Note(line, "unread", text),)
    return Variable(
        None,
        exported.pop() if len(exported) == 1 else None,
        None,
        tuple(dict.fromkeys(notes)),
        union(variable.flags() for variable in both),
    )
