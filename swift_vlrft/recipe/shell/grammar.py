"""Bash text to commands: simple ones, lists, pipes, `if`, `case`, loops, functions.

[ -n "$A" ] && export X=1        Chain(Simple [ ..., ("&&", Simple export ...))
swift rlhf --x 1 2>&1 | tee log  Pipe(Simple swift ..., Simple tee ...)

Anything can be read: where bash would end with a syntax error there is a Note, and reading goes on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from swift_vlrft.recipe.shell.words import PLACEHOLDER, Lexer, Part, Word

REDIRECT = re.compile(
    r"&>>?|(?:\d(?:\d|\\\n)*|\{[A-Za-z_]\w*\})?(<<<|<<-?|>>|<&|>&|>\||<>|<(?!\()|>(?!\())"
)
"""In `1&>log` the 1 is a word: only what begins with < or > takes a number in front."""
SEPARATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|\n]")
CLOSING = frozenset(("then", "elif", "else", "fi", "do", "done", "esac", "}"))
DEPTH = 60


@dataclass(slots=True)
class Simple:
    """Assignments, then words; ``redirected`` are the targets of redirections, ``fed`` what a
    here-document or a here-string gives it to read.
    """

    line: int
    assigned: list[Word] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirected: list[Word] = field(default_factory=list)
    appends: bool = False
    fed: Word | None = None
    last_line: int = 0
    ends_with_line: bool = False


@dataclass(slots=True)
class Test:
    """``[[ ... ]]`` and ``(( ... ))``: ``text`` is the inside of the latter."""

    line: int
    words: list[Word] = field(default_factory=list)
    text: str = ""


@dataclass(slots=True)
class Group:
    """``{ ...; }``, or in a process of its own ``( ... )``."""

    line: int
    body: list[Node]
    alone: bool


@dataclass(slots=True)
class If:
    line: int
    arms: list[tuple[list[Node], list[Node]]]
    otherwise: list[Node]


@dataclass(slots=True)
class Case:
    """``arms``: does it match anything, does it go on in the next arm, and its commands."""

    line: int
    word: Word
    arms: list[tuple[bool, bool, list[Node]]]


@dataclass(slots=True)
class Loop:
    """``kind``: for, select, while, until; ``text`` is the inside of ``for ((...))``."""

    line: int
    kind: str
    name: str | None
    words: list[Word]
    condition: list[Node]
    body: list[Node]
    text: str = ""


@dataclass(slots=True, eq=False)
class Function:
    line: int
    name: str
    body: Node


@dataclass(slots=True)
class Pipe:
    line: int
    parts: list[Node]


@dataclass(slots=True)
class Chain:
    """``first && b || c``; ``negated``: `! first`. ``background``: the whole ends in ``&``."""

    line: int
    first: Node
    rest: list[tuple[str, Node]]
    negated: bool = False
    background: bool = False


Node: TypeAlias = Simple | Test | Group | If | Case | Loop | Function | Pipe | Chain


class Parser(Lexer):
    def __init__(self, text: str, line: int = 1, places: Sequence[int] | None = None) -> None:
        super().__init__(text, line, places)
        self.depth = 0
        self.documents: list[tuple[Simple, Word, bool]] = []

    def commands(self, *closing: str) -> list[Node]:
        """Commands up to one of the words or brackets that close, which is not passed."""
        found: list[Node] = []
        while True:
            self._gap()
            if self.at >= len(self.text) or self._closes(closing):
                return found
            before = self.at
            if (node := self._chain()) is not None:
                found.append(node)
            if self.at == before:
                self._unexpected()

    def until_bracket(self) -> list[Node]:
        nodes = self._deeper(")")
        if self.ahead() != ")":
            self.note("syntax", "`(` is never closed")
        self.at += 1
        return nodes

    def parsed(self, text: str, line: int) -> list[Node]:
        inner = Parser(text, line)
        inner.depth = self.depth
        nodes = inner._deeper()
        self.notes += inner.notes
        return nodes

    def _deeper(self, *closing: str) -> list[Node]:
        self.depth += 1
        if self.depth > DEPTH:
            self.note("syntax", "commands are nested too deeply to be read")
            self.at = len(self.text)
        nodes = self.commands(*closing)
        self.depth -= 1
        return nodes

    def _gap(self) -> None:
        while True:
            self.blanks()
            if self.ahead() == "\n":
                self._newline()
            elif self.ahead() == ";" and self.ahead(2) not in (";;", ";&"):
                self.at += 1
            else:
                return

    def _newline(self) -> None:
        """Over the end of a line and the here-documents that begin below it."""
        self.advance()
        waiting, self.documents = self.documents, []
        for simple, word, tabs in waiting:
            rows, line = [], self.line
            end = "".join(part.text for part in word.parts)
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                row = self.text[self.at : stop]
                self.at = min(stop + 1, len(self.text))
                self.line += self.counts
                row = row.lstrip("\t") if tabs else row
                if row == end:
                    break
                rows.append(row)
            text = "\n".join([*rows, ""])
            simple.fed = Word(line, [Part("text", text, True)], text=text)
            if not any(part.quoted for part in word.parts):
                inner = Parser(text, line)
                inner.depth = self.depth
                simple.fed = inner.document()
                self.notes += inner.notes

    def _closes(self, closing: tuple[str, ...]) -> bool:
        return any(
            self._is_word(text) if text.isalpha() or text == "}" else self.ahead(len(text)) == text
            for text in closing
        )

    def _is_word(self, text: str) -> bool:
        """Whether ``text`` stands here as a word of its own."""
        behind = self.text[self.at + len(text) : self.at + len(text) + 1]
        return self.ahead(len(text)) == text and (not behind or behind in " \t\n;&|()<>")

    def _takes(self, text: str) -> bool:
        """Pass a word that must stand here."""
        self._gap()
        if self._closes((text,)):
            self.at += len(text)
            return True
        self.note("syntax", f"`{text}` is missing")
        return False

    def _unexpected(self) -> None:
        found = self.ahead()
        word = re.compile(r"[^\s;&|()<>]+").match(self.text, self.at)
        self.note("syntax", f"`{word[0] if word else found}` is not expected here")
        self.at = word.end() if word else self.at + 1

    def _chain(self) -> Node | None:
        line = self.line
        first = self._pipe()
        if first is None:
            return None
        rest = []
        while True:
            self.blanks()
            match = SEPARATOR.match(self.text, self.at)
            if match is None or match[0] not in ("&&", "||"):
                break
            self.at = match.end()
            self._gap()
            following = self._pipe()
            if following is None:
                self.note("syntax", f"nothing follows `{match[0]}`")
                break
            rest.append((match[0], following))
        background = bool(match and match[0] == "&")
        if match and match[0] in ("&", ";"):
            self.at = match.end()
        return Chain(line, first, rest, background=background) if rest or background else first

    def _pipe(self) -> Node | None:
        line, negated = self.line, False
        while self._is_word("!") or self._is_word("time"):
            negated ^= self.ahead() == "!"
            self.at += 1 if self.ahead() == "!" else 4
            self.blanks()
            if self._is_word("-p"):
                self.at += 2
                self.blanks()
        parts: list[Node] = []
        while (part := self._command()) is not None:
            parts.append(part)
            self.blanks()
            match = SEPARATOR.match(self.text, self.at)
            if match is None or match[0] not in ("|", "|&"):
                break
            self.at = match.end()
            self._gap()
        else:
            if parts:
                self.note("syntax", "nothing follows `|`")
        if not parts:
            return None
        node = parts[0] if len(parts) == 1 else Pipe(line, parts)
        return Chain(line, node, [], negated=True) if negated else node

    def _command(self) -> Node | None:
        self.depth += 1
        if self.depth > DEPTH:
            self.note("syntax", "commands are nested too deeply to be read")
            self.at = len(self.text)
        node = self._compound()
        if node is None:
            node = self._simple()
        else:
            redirections = Simple(self.line)
            while self._redirection(redirections):
                self.blanks()
        self.depth -= 1
        return node

    def _compound(self) -> Node | None:
        line = self.line
        if self.ahead(2) == "((" and (text := self.arithmetic(0)) is not None:
            return Test(line, text=text)
        if self.ahead() == "(":
            self.at += 1
            return Group(line, self.until_bracket(), True)
        for word in ("{", "[[", "if", "case", "for", "select", "while", "until", "function"):
            if self._is_word(word):
                self.at += len(word)
                if word in ("while", "until"):
                    return self._loop(line, word, None, [], self.commands("do", *CLOSING))
                return {
                    "{": self._block,
                    "[[": self._test,
                    "if": self._if,
                    "case": self._case,
                    "function": self._function,
                }.get(word, self._for)(line)
        return None

    def _block(self, line: int) -> Node:
        body = self.commands("}")
        self._takes("}")
        return Group(line, body, False)

    def _test(self, line: int) -> Node:
        words = []
        while self.at < len(self.text) and not self._is_word("]]"):
            before = self.at
            self.blanks()
            if self._is_word("]]"):
                break
            if self.ahead() and self.ahead() not in "|&;()<> \t\n":
                words.append(self.word())
            elif self.at == before and self.at < len(self.text):
                self.advance()
        self._takes("]]")
        return Test(line, words)

    def _if(self, line: int) -> Node:
        arms = []
        while True:
            condition = self.commands(*CLOSING)
            if not self._takes("then"):
                break
            arms.append((condition, self.commands("elif", "else", "fi")))
            if not self._closes(("elif",)):
                break
            self.at += len("elif")
        otherwise: list[Node] = []
        if self._closes(("else",)):
            self.at += len("else")
            otherwise = self.commands("fi")
        self._takes("fi")
        return If(line, arms, otherwise)

    def _case(self, line: int) -> Node:
        self.blanks()
        word = self.word()
        self._takes("in")
        arms = []
        while True:
            self._gap()
            if self.at >= len(self.text) or self._is_word("esac"):
                break
            if self.ahead() == "(":
                self.at += 1
            pattern, depth = self.at, 0
            while self.at < len(self.text) and (depth or self.ahead() not in ")\n"):
                if self.ahead() in "()|&;<> \t\n":
                    depth += {"(": 1, ")": -1}.get(self.advance(), 0)
                elif not self.word().text:
                    self.advance()
            patterns = self.text[pattern : self.at].split("|")
            if self.ahead() != ")":
                self.note("syntax", "`)` is missing behind a pattern")
                continue
            self.at += 1
            body = self.commands(";;", ";&", "esac")
            end = SEPARATOR.match(self.text, self.at)
            if end and end[0].startswith(";"):
                self.at = end.end()
            goes_on = bool(end and end[0] in (";&", ";;&"))
            arms.append((any(one.strip() == "*" for one in patterns), goes_on, body))
        self._takes("esac")
        return Case(line, word, arms)

    def _for(self, line: int) -> Node:
        kind = "select" if self.text[self.at - 6 : self.at] == "select" else "for"
        self.blanks()
        if self.ahead(2) == "((" and (text := self.arithmetic(0)) is not None:
            return self._loop(line, kind, None, [], [], text)
        name = self.word().plain
        self._gap()
        words = []
        if self._is_word("in"):
            self.at += 2
            self.blanks()
            while self.at < len(self.text) and self.ahead() not in ";\n&|()<>":
                words.append(self.word())
                self.blanks()
        return self._loop(line, kind, name, words, [])

    def _loop(
        self,
        line: int,
        kind: str,
        name: str | None,
        words: list[Word],
        condition: list[Node],
        text: str = "",
    ) -> Node:
        self._gap()
        body: list[Node] = []
        opening, closing = ("{", "}") if self._is_word("{") else ("do", "done")
        if opening == "{":
            self.at += 1
        if opening == "{" or self._takes("do"):
            body = self.commands(closing)
            self._takes(closing)
        return Loop(line, kind, name, words, condition, body, text)

    def _function(self, line: int) -> Node:
        self.blanks()
        name = self.word().text
        self.blanks()
        if self.ahead() == "(":
            self.at += 1
            self.blanks()
            self._takes(")")
        return self._body(line, name)

    def _body(self, line: int, name: str) -> Node:
        self._gap()
        body = self._command()
        if body is None:
            self.note("syntax", f"the function {name} has no body")
        return Function(line, name, body or Simple(line))

    def _simple(self) -> Node | None:
        simple = Simple(self.line)
        start = self.at
        while True:
            self.blanks()
            placeholder = PLACEHOLDER.match(self.text, self.at)
            if not placeholder and self._redirection(simple):
                continue
            if self.ahead() == "(" and len(simple.words) == 1 and not simple.assigned:
                self.at += 1
                self.blanks()
                if self.ahead() != ")":
                    self.note("syntax", "`(` is not expected here")
                    break
                self.at += 1
                return self._body(simple.line, simple.words[0].text)
            elif self.at >= len(self.text) or (
                self.ahead() in "|&;()<>\n"
                and self.ahead(2) not in ("<(", ">(")
                and not placeholder
            ):
                break
            else:
                if not simple.words and not simple.assigned:
                    if any(self._is_word(word) for word in CLOSING):
                        return None
                    simple.line = self.line
                word = self.word()
                if not word.text:
                    break
                first = not simple.words and word.assigns
                (simple.assigned if first else simple.words).append(word)
        simple.last_line, simple.ends_with_line = self.line, self.ahead() == "\n"
        return simple if self.at > start else None

    def _redirection(self, simple: Simple) -> bool:
        match = REDIRECT.match(self.text, self.at)
        if match is None:
            return False
        while self.at < match.end():
            self.advance()
        while self.ahead() in (" ", "\t"):
            self.at += 1
        word = self.word()
        if not word.text:
            self.note("syntax", f"nothing follows `{match[0]}`")
            return True
        if match[1] in ("<<", "<<-"):
            self.documents.append((simple, word, match[1] == "<<-"))
        elif match[1] == "<<<":
            simple.fed = word
        else:
            simple.redirected.append(word)
            simple.appends |= ">>" in match[0]
        return True
