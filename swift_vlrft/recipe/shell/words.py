"""Bash text to words: quotes, continuations and expansions, each with its line and its place.

--model "$MODEL" \
    --x 1                 words --model (line 1), "$MODEL", --x (line 2), 1

What a word becomes is decided in shell_expand.py, what words belong together in shell_grammar.py.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]\s]*\])?(\+?)=")
PLACEHOLDER = re.compile(r"<[A-Za-z][\w-]*(?: [\w-]+)*>")
CONTINUED = re.compile(r"\\[ \t]*(\n|\Z)")
PARAMETER = re.compile(r"\$([A-Za-z_]\w*|[@*#?$!0-9-])")
BARE = frozenset("|&;()<> \t\n")

ESCAPES = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)


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


@dataclass(slots=True)
class Part:
    """A piece of a word. ``kind``: text, variable (the inside of ``${}``), run (a command
    substitution, parsed in ``nodes``) or odd (arithmetic, a process substitution, a placeholder).
    """

    kind: str
    text: str
    quoted: bool
    nodes: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Word:
    """``array``: the items of ``NAME=(...)``; ``text``: as it is written."""

    line: int
    parts: list[Part] = field(default_factory=list)
    array: list[Word] | None = None
    span: Span | None = None
    text: str = ""

    @property
    def plain(self) -> str | None:
        """The text of a word without quotes and expansions."""
        if any(part.kind != "text" or part.quoted for part in self.parts):
            return None
        return "".join(part.text for part in self.parts)

    @property
    def assigns(self) -> re.Match[str] | None:
        """The NAME= that an assignment begins with."""
        if not self.parts or self.parts[0].kind != "text" or self.parts[0].quoted:
            return None
        return ASSIGNMENT.match(self.parts[0].text)


class Lexer(ABC):
    """Reads one word at a time; what a word has of commands inside is read by the Parser.

    ``places``: where each character (and the end) of ``text`` stands in the file; without them the
    words have no span, and all have the one ``line``.
    """

    def __init__(self, text: str, line: int = 1, places: Sequence[int] | None = None) -> None:
        self.text, self.at, self.line, self.places = text, 0, line, places
        self.counts = places is not None
        self.notes: list[Note] = []

    def note(self, kind: str, text: str, line: int | None = None) -> None:
        self.notes.append(Note(line or self.line, kind, text))

    def ahead(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def advance(self) -> str:
        character = self.text[self.at]
        self.at += 1
        self.line += character == "\n" and self.counts
        return character

    def blanks(self) -> None:
        """Skip blanks, comments and backslashes at the end of a line."""
        while self.at < len(self.text):
            match = CONTINUED.match(self.text, self.at)
            if match:
                if match[0].strip("\\\n"):
                    self.note(
                        "continuation",
                        "a blank follows the backslash, so the line does not go on: everything "
                        "below is lost. Delete the blank",
                    )
                while self.at < match.end():
                    self.advance()
            elif self.ahead() in " \t":
                self.at += 1
            elif self.ahead() == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def word(self) -> Word:
        """The word that begins here; an empty one where none does."""
        start, word = self.at, Word(self.line)
        while self.at < len(self.text):
            character = self.ahead()
            if character == "\\":
                if match := CONTINUED.match(self.text, self.at):
                    if match[0] != "\\\n":
                        break
                    self.at += 1
                    self.advance()
                    continue
                self.at += 1
                self._add(word, Part("text", self.advance(), True))
            elif self.ahead(2) in ("<(", ">("):
                self._process(word)
            elif placeholder := PLACEHOLDER.match(self.text, self.at):
                self._placeholder(word, placeholder[0])
            elif character in BARE:
                if character == "(" and word.plain and ASSIGNMENT.fullmatch(word.plain):
                    self.at += 1
                    word.array = self._array()
                break
            elif character == "'":
                self.at += 1
                self._add(word, Part("text", self._until("'"), True))
            elif character == '"':
                self.at += 1
                self._double(word)
            elif character in "$`":
                self._dollar(word, False)
            else:
                self._add(word, Part("text", self.advance(), False))
        self._close(word, start)
        return word

    def document(self) -> Word:
        """The whole text as a here-document: quotes are text, expansions are not."""
        word = Word(self.line, text=self.text)
        self._double(word, None)
        return word

    def everything(self) -> Word:
        """The whole text as one word, in which blanks and operators are text."""
        whole = Word(self.line)
        while self.at < len(self.text):
            before = self.at
            whole.parts += self.word().parts
            if self.at == before:
                whole.parts.append(Part("text", self.advance(), False))
        return whole

    def _close(self, word: Word, start: int) -> None:
        word.text = self.text[start : self.at]
        last = min(self.at, len(self.text))
        if self.places is not None and last > start:
            literal = word.array is None and all(part.kind == "text" for part in word.parts)
            literal &= not any(
                set(part.text) & set("*?[{~") for part in word.parts if not part.quoted
            )
            word.span = Span(self.places[start], self.places[last - 1] + 1, literal)

    def _add(self, word: Word, part: Part) -> None:
        last = word.parts[-1] if word.parts else None
        if last is not None and part.kind == "text" == last.kind and last.quoted == part.quoted:
            last.text += part.text
        else:
            word.parts.append(part)

    def _array(self) -> list[Word]:
        words = []
        while self.at < len(self.text) and self.ahead() != ")":
            before = self.at
            self.blanks()
            if self.ahead() and self.ahead() not in BARE:
                words.append(self.word())
            elif self.at == before:
                self.advance()
        if self.ahead() != ")":
            self.note("syntax", "`(` is never closed")
        self.at += 1
        return words

    def _until(self, end: str) -> str:
        """The text up to ``end``, which is passed."""
        start, line = self.at, self.line
        while self.at < len(self.text):
            if self.advance() == end:
                return self.text[start : self.at - 1]
            if end != "'" and self.text[self.at - 1] == "\\" and self.at < len(self.text):
                self.advance()
        self.note("syntax", f"the quote {end} is never closed", line)
        return self.text[start:]

    def _double(self, word: Word, end: str | None = '"') -> None:
        line = self.line
        self._add(word, Part("text", "", True))
        while self.at < len(self.text):
            character = self.ahead()
            if character == end:
                self.at += 1
                return
            if character == "\\" and self.ahead(2)[1:] in ("$", "`", "\\", "\n", end):
                self.at += 1
                escaped = self.advance()
                if escaped != "\n":
                    self._add(word, Part("text", escaped, True))
            elif character in "$`":
                self._dollar(word, True)
            else:
                self._add(word, Part("text", self.advance(), True))
        if end:
            self.note("syntax", f"the quote {end} is never closed", line)

    def _dollar(self, word: Word, quoted: bool) -> None:
        start = self.at
        if self.ahead() == "`":
            line = self.line
            self.at += 1
            inside = re.sub(r"\\([`$\\])", r"\1", self._until("`"))
            self._add(word, Part("run", inside, quoted, self.parsed(inside, line)))
        elif self.ahead(3) == "$((" and (total := self.arithmetic(1)) is not None:
            self._add(word, Part("odd", f"$(({total}))", quoted))
        elif self.ahead(2) == "$(":
            self.at += 2
            nodes = self.until_bracket()
            inside = self.text[start + 2 : self.at - 1]
            self._add(word, Part("run", inside, quoted, nodes))
        elif self.ahead(2) == "${":
            self._braces(quoted)
            self._add(word, Part("variable", self.text[start + 2 : self.at - 1], quoted))
        elif self.ahead(2) == "$'" and not quoted:
            self.at += 2
            self._add(word, Part("text", unescaped(self._ansi()), True))
        elif self.ahead(2) == '$"' and not quoted:
            self.at += 2
            self._double(word)
        elif match := PARAMETER.match(self.text, self.at):
            self.at = match.end()
            self._add(word, Part("variable", match[1], quoted))
        else:
            self.at += 1
            self._add(word, Part("text", "$", quoted))

    def _ansi(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.ahead() != "'":
            if self.advance() == "\\" and self.at < len(self.text):
                self.advance()
        self.at += 1
        return self.text[start : self.at - 1]

    def _braces(self, quoted: bool) -> None:
        """Over a ``${...}``, which ends at the first } outside of quotes and other expansions."""
        line, skipped = self.line, Word(0)
        self.at += 2
        while self.at < len(self.text):
            character = self.ahead()
            if character == "}":
                self.at += 1
                return
            if character in "$`":
                self._dollar(skipped, False)
            elif character == '"':
                self.at += 1
                self._double(skipped)
            elif character == "'" and not quoted:
                self.at += 1
                self._until("'")
            elif self.advance() == "\\" and self.at < len(self.text):
                self.advance()
        self.note("syntax", "`{` is never closed", line)
        self.at += 1

    def arithmetic(self, before: int) -> str | None:
        """The inside of ``((...))``, passed; None (and nothing passed) where it is not one.
        ``before``: characters in front of the brackets.
        """
        depth, at = 0, self.at + before
        start = at + 2
        while at < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            at += 1
            if depth == 0:
                inside = self.text[start : at - 2]
                if self.text[at - 2] != ")" or self.text[at - 2 : at] != "))":
                    return None
                while self.at < at:
                    self.advance()
                return inside
        return None

    def _placeholder(self, word: Word, text: str) -> None:
        self.note(
            "placeholder",
            f"{text} is a placeholder (bash reads `<` as a redirection): put the value in its "
            "place",
        )
        self.at += len(text)
        self._add(word, Part("odd", text, False))

    def _process(self, word: Word) -> None:
        """``<(command)``: the name of a pipe, known only when it runs."""
        start = self.at
        self.at += 2
        nodes = self.until_bracket()
        self._add(word, Part("odd", self.text[start : self.at], False, nodes))

    @abstractmethod
    def until_bracket(self) -> list[Any]:
        """The commands up to the ``)`` that closes, which is passed."""

    @abstractmethod
    def parsed(self, text: str, line: int) -> list[Any]:
        """The commands of a text that has no place of its own."""


def unescaped(text: str) -> str:
    """What ``$'text'`` stands for."""

    def one(match: re.Match[str]) -> str:
        for digits, base in ((match[1], 16), (match[2], 16), (match[3], 8)):
            if digits:
                return chr(int(digits, base))
        return ESCAPES.get(match[4], match[0])

    return ESCAPE.sub(one, text)
