"""Bash text as the syntax tree of shfmt (mvdan.cc/sh), whose nodes know where they stand.

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
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=")
PLACEHOLDER = re.compile(r"(?<![<&])<[A-Za-z][\w-]*(?: [\w-]+)*>")
"""<your path>, which bash takes for redirections."""
STAND_INS = str.maketrans("<> ", "\1\2\3")
MEANT = str.maketrans("\1\2\3", "<> ")
BLANK_BEHIND = re.compile(r"\\([ \t]+)(?=\r?\n)")


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


class Place(NamedTuple):
    at: int
    line: int


class Node:
    """A node with the fields of https://pkg.go.dev/mvdan.cc/sh/v3/syntax; one that is not given is
    empty. ``source`` is the whole text, which is none of a file where ``inner``.
    """

    Type: str
    Pos: Place
    End: Place

    def __init__(self, fields: dict[str, Any], source: str, inner: bool) -> None:
        self.__dict__ |= fields
        self.source, self.inner = source, inner

    def __getattr__(self, name: str) -> Any:
        return ()

    @property
    def line(self) -> int:
        return self.Pos.line

    @property
    def text(self) -> str:
        """As it is written."""
        return self.source[self.Pos.at : self.End.at]

    @property
    def span(self) -> Span | None:
        """Of a word."""
        if self.inner:
            return None
        return Span(self.Pos.at, self.End.at, bool(self.Parts) and all(map(_literal, self.Parts)))

    def under(self, kind: str) -> Iterator[Node]:
        """All nodes of a type in this one, itself included."""
        if self.Type == kind:
            yield self
        for field in self.__dict__.values():
            for node in field if isinstance(field, list) else [field]:
                if isinstance(node, Node):
                    yield from node.under(kind)


def _literal(part: Node) -> bool:
    if part.Type == "Lit":
        return not set(re.sub(r"\\.", "", part.Value)) & set("*?[{~\1")
    quoted = part.Type == "DblQuoted" and all(inner.Type == "Lit" for inner in part.Parts)
    return quoted or (part.Type == "SglQuoted" and not part.Dollar)


@lru_cache(maxsize=200)
def parse(text: str, line: int = 0) -> tuple[Sequence[Node], Sequence[Note]]:
    """The statements up to the first mistake, and notes on what is wrong.

    ``line``: where a text stands that is none of the file, so that its words have no span.
    FileNotFoundError if there is no shfmt.
    """
    clean = re.sub(r"^\ufeff|(?<!\\)\\\Z", " ", text)
    clean = PLACEHOLDER.sub(lambda match: match[0].translate(STAND_INS), clean)
    command = [shfmt(), "--to-json", "-ln", "bash"]
    data = clean.encode(errors="replace")
    done = subprocess.run(command, input=data, capture_output=True)
    if done.returncode:
        return _up_to(text, done.stderr.decode(), line)
    characters: Sequence[int] = range(len(data) + 1)
    if len(data) > len(text):
        characters = [*accumulate((byte & 0xC0 != 0x80 for byte in data), initial=0)]

    def node(found: dict[str, Any]) -> Any:
        if "Col" in found:
            return Place(characters[found["Offset"]], line or found["Line"])
        if "End" in found and text[found["End"].at - 1 : found["End"].at + 1] == "\r\n":
            found["End"] = found["End"]._replace(at=found["End"].at - 1)
        return Node(found, text, line > 0)

    try:
        tree = json.loads(done.stdout, object_hook=node)
    except RecursionError:
        return (), (Note(line or 1, "syntax", "commands are nested too deeply: nothing read"),)
    if BLANK_BEHIND.search(clean):
        ends = {lit.End.at for lit in tree.under("Lit")}
        for match in BLANK_BEHIND.finditer(clean):
            if match.start() + 2 in ends:
                start, end = match.span()
                swapped = f"{text[:start]}{match[1]}\\{text[end:]}"
                statements, notes = parse(swapped, line)
                why = "a blank follows the backslash, so the line does not go on: everything below "
                why += "is lost. Delete the blank"
                at = line or text.count("\n", 0, start) + 1
                return statements, (Note(at, "continuation", why), *notes)
    return tree.Stmts, ()


def _up_to(text: str, error: str, line: int) -> tuple[Sequence[Node], Sequence[Note]]:
    """What stands above a mistake, without a command that is cut."""
    match = re.match(r"(?:<.*>:)?(\d+):\S+ (.*)", error)
    at, why = (int(match[1]), match[2]) if match else (1, error)
    above = text.split("\n")[: at - 1]
    while above and re.search(r"\\\s*$", above[-1]):
        above.pop()
    statements = parse("\n".join([*above, ""]), line)[0] if above else ()
    return statements, (Note(line or at, "syntax", f"{why}: nothing below read"),)


@lru_cache
def shfmt() -> str:
    for folder in (os.path.dirname(sys.executable), sysconfig.get_path("scripts"), None):
        if found := shutil.which("shfmt", path=folder):
            return found
    raise FileNotFoundError(
        "the program shfmt, which reads scripts, is missing: install it with "
        f"`{sys.executable} -m pip install shfmt-py`"
    )
