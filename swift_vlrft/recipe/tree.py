"""Parse bash text into the syntax tree of shfmt (mvdan.cc/sh), whose nodes know their place.

A=1 swift rlhf --model "$M"     [Stmt(Cmd=CallExpr(Assigns=[A=1], Args=[swift, ..., "$M"]))]
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

COMMENT_GOES_ON = re.compile(
    r"""(?m)^(?:'[^'\n]*'|"[^"\n]*"|[^'"\n#]|(?<=\S)#)*?(?:^|(?<=\s))#[^\n]*\\$"""
)
"""A comment that ends in a backslash: shfmt takes the next line for a part of the command, and bash
does not.
"""
BLANK_BEHIND = re.compile(r"\\((?:[^\S\r\n]|[\u200b-\u200d\u2060\ufeff])+)(?=\r?\n)")
"""Blanks of any alphabet, and characters without width."""


class Mistake(ValueError):
    """bash refuses the text: the message has line, column and reason."""


class Patch(NamedTuple):
    """A change of a text: ``new`` in the place of ``text[start:end]``."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Note:
    """A note says what the reader noticed in a line; its ``kind`` is needed (unset, and no fault of
    the script), unread, unused or spoken, or that of a fault: unset, continuation, not-exported ...
    """

    line: int
    kind: str
    text: str
    variable: str = field(default="", compare=False)
    """The variables that it is about, with blanks between them."""
    column: int = 0
    patches: tuple[Patch, ...] = field(default=(), compare=False)
    """What mends it."""


def note_at(source: str, at: int, kind: str, text: str, *patches: Patch, name: str = "") -> Note:
    """Return a note on a place of a text."""
    line, column = source.count("\n", 0, at) + 1, column_of(source, at)
    return Note(line, kind, text, name, column, patches)


def column_of(source: str, at: int) -> int:
    return at - source.rfind("\n", 0, at)


@dataclass(frozen=True, slots=True)
class Span:
    """A word stands at ``text[start:end]``, counted in characters of the decoded file.
    ``literal``: the text there is, quotes aside, the value itself; not so for ``"$MODEL"``.
    """

    start: int
    end: int
    literal: bool = True


class Place(NamedTuple):
    at: int
    line: int


class Node:
    """A node has the fields of https://pkg.go.dev/mvdan.cc/sh/v3/syntax. A missing field is empty.
    ``source`` is the whole text.
    """

    Type: str
    Pos: Place
    End: Place

    def __init__(self, fields: dict[str, Any], source: str) -> None:
        self.__dict__ |= fields
        self.source = source

    def __getattr__(self, name: str) -> Any:
        return ()

    @property
    def line(self) -> int:
        return self.Pos.line

    @property
    def text(self) -> str:
        """Return the text of the node, as written."""
        return self.source[self.Pos.at : self.End.at]

    @property
    def span(self) -> Span:
        """Return the place of a word."""
        return Span(self.Pos.at, self.End.at, bool(self.Parts) and all(map(_literal, self.Parts)))

    def walk(self) -> Iterator[Node]:
        """Yield the node itself and all nodes below it."""
        yield self
        for value in self.__dict__.values():
            for node in value if isinstance(value, list) else [value]:
                if isinstance(node, Node):
                    yield from node.walk()


def _literal(part: Node) -> bool:
    if part.Type == "Lit":
        return not set(re.sub(r"\\.", "", part.Value)) & set("*?[{~")
    quoted = part.Type == "DblQuoted" and all(inner.Type == "Lit" for inner in part.Parts)
    return quoted or (part.Type == "SglQuoted" and not part.Dollar)


@lru_cache(maxsize=200)
def parse(text: str) -> tuple[Sequence[Node], Sequence[Note]]:
    """Return the statements of a text, and notes on blanks that end its continued lines. Mistake
    where bash refuses it; FileNotFoundError if there is no shfmt.
    """
    tree = tree_of(text)
    ends = {part.End.at for part in tree.walk() if part.Type == "Lit"}
    for match in BLANK_BEHIND.finditer(text):
        if ends & {*range(match.start() + 2, match.end() + 1)}:
            start, end = match.span()
            blanks = " " * len(match[1])
            statements, notes = parse(f"{text[:start]}{blanks}\\{text[end:]}")
            why = "a blank follows the backslash, so the line does not go on: everything below "
            why += "is lost. Delete the blank"
            patch = Patch(start + 1, end, "")
            return statements, (note_at(text, start, "continuation", why, patch), *notes)
    return tree.Stmts, ()


def tree_of(text: str) -> Node:
    """Return the tree of a text as it stands; Mistake where bash refuses it."""
    clean = re.sub(r"^\ufeff|(?<!\\)\\\Z", " ", text)
    clean = COMMENT_GOES_ON.sub(lambda match: f"{match[0][:-1]} ", clean)
    data = clean.encode(errors="replace")
    characters: Sequence[int] = range(len(data) + 1)
    if len(data) > len(text):
        characters = [*accumulate((byte & 0xC0 != 0x80 for byte in data), initial=0)]

    def node(fields: dict[str, Any]) -> Any:
        if "Col" in fields:
            return Place(characters[fields["Offset"]], fields["Line"])
        if "End" in fields and text[fields["End"].at - 1 : fields["End"].at + 1] == "\r\n":
            fields["End"] = fields["End"]._replace(at=fields["End"].at - 1)
        return Node(fields, text)

    done = subprocess.run([shfmt(), "--to-json", "-ln", "bash"], input=data, capture_output=True)
    if done.returncode:
        match = re.match(r"(?:<.*>:)?(\d+):(\d+): (.*)", done.stderr.decode(errors="replace"))
        line, column, why = match.groups() if match else (1, 1, "it is not bash")
        raise Mistake(f"line {line}, column {column}: bash refuses it: {why}")
    tree: Node = json.loads(done.stdout, object_hook=node)
    return tree


@lru_cache
def shfmt() -> str:
    for folder in (os.path.dirname(sys.executable), sysconfig.get_path("scripts"), None):
        if program := shutil.which("shfmt", path=folder):
            return program
    raise FileNotFoundError(
        "the program shfmt, which reads scripts, is missing: install it with "
        f"`{sys.executable} -m pip install shfmt-py`"
    )
