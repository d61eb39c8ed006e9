"""What a bash text is read into: words of parts, and commands of words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=")
NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Note:
    """What the reader has to say about a line; ``kind`` is one of continuation, placeholder,
    unset, needed (unset, and no fault of the script), not-exported, unread, conditional, syntax.
    """

    line: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """Where something stands: ``text[start:end]``, by characters of the file as it is decoded, with
    its byte order mark and carriage returns. ``literal``: what stands there is, quotes aside, the
    value itself; not so for ``"$MODEL"`` or ``data/*.jsonl``.
    """

    start: int
    end: int
    literal: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word: text, a variable, a command substitution (run), or one whose value only
    bash knows (odd: arithmetic, a process substitution, a placeholder).

    ``text`` is the inside of ``${NAME[INDEX]OPERATOR WORD}``. The operator is "#" for a length,
    "odd" where it is none that is followed.
    """

    kind: Literal["text", "variable", "run", "odd"]
    text: str
    quoted: bool = False
    nodes: tuple[Node, ...] = ()
    name: str = ""
    index: str = ""
    operator: str = ""
    word: tuple[Part, ...] = ()

    @property
    def lists(self) -> bool:
        """Whether it may be several words in quotes, too."""
        return (self.name == "@" or self.index == "[@]") and self.operator != "#"


@dataclass(frozen=True, slots=True)
class Word:
    """``text``: as it is written; ``array``: the items of ``NAME=(...)``."""

    line: int
    parts: tuple[Part, ...] = ()
    text: str = ""
    span: Span | None = None
    array: tuple[Word, ...] | None = None


@dataclass(slots=True)
class Simple:
    """Assignments, then words; ``redirected`` are the targets of redirections, ``fed`` what a
    here-document or a here-string gives it to read.

    Tests are commands, too: ``[[ ... ]]``, ``((...))`` and the word of a `case`.
    """

    line: int
    words: list[Word] = field(default_factory=list)
    assigned: list[Word] = field(default_factory=list)
    redirected: list[Word] = field(default_factory=list)
    appends: bool = False
    fed: Word | None = None
    last_line: int = 0
    ends_with_line: bool = False


@dataclass(slots=True)
class Group:
    """``{ ...; }``; ``alone``, in a process of its own: ``( ... )`` and each part of a pipe."""

    line: int
    body: list[Node]
    alone: bool = False


@dataclass(slots=True)
class Branch:
    """`if` and `case`: conditions and commands. ``complete``: one of them runs for certain."""

    line: int
    kind: str
    arms: list[tuple[list[Node], list[Node]]]
    complete: bool


@dataclass(slots=True)
class Loop:
    """``kind``: for, select, while, until."""

    line: int
    kind: str
    name: str | None
    words: list[Word]
    condition: list[Node]
    body: list[Node]


@dataclass(slots=True, eq=False)
class Function:
    line: int
    name: str
    body: Node


@dataclass(slots=True)
class Chain:
    """``first && b || c``; ``negated``: `! first`. ``background``: the whole ends in ``&``."""

    line: int
    first: Node
    rest: list[tuple[str, Node]]
    negated: bool = False
    background: bool = False


Node: TypeAlias = Simple | Group | Branch | Loop | Function | Chain
