"""Bash text to words and operators, with their lines: quotes, continuations, expansions left as
they are.

--model "$MODEL" \
    --x 1                 words --model (line 1), "$MODEL", --x (line 2), 1
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
PLACEHOLDER = re.compile(r"<[A-Za-z][\w-]*(?: [\w-]+)*>")
OPERATOR = re.compile(r"&&|\|\||;;|[;&|()]")
REDIRECT = re.compile(r"\d*(?:&>>?|<<<|<<-?|>>|<&|>&|>\||<|>)")
BARE = ("|", "&", ";", "(", ")", "<", ">", " ", "\t", "\n")


@dataclass(frozen=True, slots=True)
class Note:
    """What the reader has to say about a line; ``kind`` is one of continuation, placeholder,
    unset, needed (unset, and the script says so itself), not-exported, unread, conditional, syntax.
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
    substitution) or odd (anything else behind a dollar sign).
    """

    kind: str
    text: str
    quoted: bool


@dataclass(slots=True)
class Word:
    line: int
    parts: list[Part] = field(default_factory=list)
    array: list[Word] | None = None
    span: Span | None = None

    @property
    def plain(self) -> str | None:
        """The text of a word without quotes and expansions."""
        if any(part.kind != "text" or part.quoted for part in self.parts):
            return None
        return "".join(part.text for part in self.parts)


@dataclass(slots=True)
class Operator:
    line: int
    text: str


class Lexer:
    """Text to words and operators; a redirection and its target are dropped."""

    def __init__(self, text: str, line: int = 1, places: Sequence[int] | None = None) -> None:
        """``places``: where each character (and the end) of ``text`` stands in the file."""
        self.text, self.at, self.line, self.places = text, 0, line, places
        self.notes: list[Note] = []
        self.heredocs: list[tuple[str, bool]] = []

    def tokens(self) -> list[Word | Operator]:
        found: list[Word | Operator] = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if self._continued():
                continue
            if character == "\n":
                found.append(Operator(self.line, "\n"))
                self._advance()
                self._skip_heredocs()
            elif character in " \t":
                self.at += 1
            elif character == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif placeholder := PLACEHOLDER.match(self.text, self.at):
                found.append(Word(self.line, [Part("odd", placeholder[0], False)]))
                self.notes.append(
                    Note(
                        self.line,
                        "placeholder",
                        f"{placeholder[0]} is a placeholder (bash reads `<` as a redirection): "
                        "put the value in its place",
                    )
                )
                self.at = placeholder.end()
            elif redirect := REDIRECT.match(self.text, self.at):
                self._redirect(redirect)
            elif operator := OPERATOR.match(self.text, self.at):
                found.append(Operator(self.line, operator[0]))
                self.at = operator.end()
            else:
                found.append(self._word())
        return found

    def _advance(self) -> str:
        character = self.text[self.at]
        self.at += 1
        self.line += character == "\n"
        return character

    def _continued(self) -> bool:
        """Skip a backslash at the end of a line; a blank after it undoes it in bash."""
        match = re.compile(r"\\([ \t]*)(?:\n|\Z)").match(self.text, self.at)
        if match is None:
            return False
        if match[1]:
            self.notes.append(
                Note(
                    self.line,
                    "continuation",
                    "a blank follows the backslash, so the line does not go on: everything below "
                    "is lost. Delete the blank",
                )
            )
        self.line += "\n" in match[0]
        self.at = match.end()
        return True

    def _redirect(self, match: re.Match[str]) -> None:
        self.at = match.end()
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at >= len(self.text) or self.text[self.at] == "\n":
            self.notes.append(Note(self.line, "syntax", f"nothing follows `{match[0]}`"))
            return
        target = self._word() if self.text[self.at] not in BARE else None
        if match[0].lstrip("0123456789").startswith("<<") and not match[0].endswith("<<<"):
            end = "".join(part.text for part in target.parts) if target else ""
            self.heredocs.append((end, match[0].endswith("-")))

    def _skip_heredocs(self) -> None:
        for end, tabs in self.heredocs:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                row = self.text[self.at : stop]
                self.at = min(stop + 1, len(self.text))
                self.line += 1
                if (row.lstrip("\t") if tabs else row) == end:
                    break
        self.heredocs = []

    def _word(self) -> Word:
        start = self.at
        word = self._word_at()
        if self.places is not None and self.at > start:
            last = min(self.at, len(self.text))
            literal = all(part.kind == "text" for part in word.parts) and word.array is None
            word.span = Span(self.places[start], self.places[last - 1] + 1, literal)
        return word

    def _word_at(self) -> Word:
        word = Word(self.line)
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "\\":
                if re.compile(r"\\[ \t]*(\n|\Z)").match(self.text, self.at):
                    if self.text[self.at : self.at + 2] != "\\\n":
                        break
                    self.at += 2
                    self.line += 1
                    continue
                self._add(word, "text", self.text[self.at + 1], True)
                self.at += 2
            elif character in BARE:
                if character == "(" and self._opens_array(word):
                    self.at += 1
                    word.array = self._array()
                    return word
                break
            elif character == "'":
                self.at += 1
                self._add(word, "text", self._until("'"), True)
            elif character == '"':
                self.at += 1
                self._double(word)
            elif character in "$`":
                self._dollar(word, False)
            else:
                self._add(word, "text", self._advance(), False)
        return word

    def _opens_array(self, word: Word) -> bool:
        return bool(word.plain and ASSIGNMENT.fullmatch(word.plain))

    def _array(self) -> list[Word]:
        words = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self._continued():
                continue
            if self.text[self.at] in " \t\n":
                self._advance()
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in BARE:
                self._advance()
            else:
                words.append(self._word())
        self.at += 1
        return words

    def _add(self, word: Word, kind: str, text: str, quoted: bool) -> None:
        last = word.parts[-1] if word.parts else None
        if last is not None and kind == "text" == last.kind and last.quoted == quoted:
            last.text += text
        else:
            word.parts.append(Part(kind, text, quoted))

    def _until(self, end: str) -> str:
        """The text up to ``end``, which is passed."""
        start, line = self.at, self.line
        while self.at < len(self.text):
            if self._advance() == end:
                return self.text[start : self.at - 1]
        self.notes.append(Note(line, "syntax", f"the quote {end} is never closed"))
        return self.text[start:]

    def _double(self, word: Word) -> None:
        line = self.line
        self._add(word, "text", "", True)
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == '"':
                self.at += 1
                return
            if character == "\\" and self.text[self.at + 1 : self.at + 2] in tuple('$`"\\\n'):
                if self.text[self.at + 1] != "\n":
                    self._add(word, "text", self.text[self.at + 1], True)
                self.at += 1
                self._advance()
            elif character in "$`":
                self._dollar(word, True)
            else:
                self._add(word, "text", self._advance(), True)
        self.notes.append(Note(line, "syntax", 'the quote " is never closed'))

    def _dollar(self, word: Word, quoted: bool) -> None:
        text, at = self.text, self.at
        if text[at] == "`":
            self.at += 1
            self._add(word, "run", self._until("`"), quoted)
        elif text.startswith("$((", at):
            self.at += 1
            inside = self._balanced("(", ")")
            self._add(word, "odd", f"$({inside})", quoted)
        elif text.startswith("$(", at):
            self.at += 1
            self._add(word, "run", self._balanced("(", ")"), quoted)
        elif text.startswith("${", at):
            self.at += 1
            self._add(word, "variable", self._balanced("{", "}"), quoted)
        elif text.startswith("$'", at):
            self.at += 2
            self._add(word, "text", self._until("'"), True)
        elif match := re.compile(r"\$([A-Za-z_]\w*|[@*#?$!0-9-])").match(text, at):
            self.at = match.end()
            self._add(word, "variable", match[1], quoted)
        else:
            self.at += 1
            self._add(word, "text", "$", quoted)

    def _balanced(self, opening: str, closing: str) -> str:
        """The inside of a bracket that opens here, quotes in it skipped."""
        line, start, depth, quote = self.line, self.at + 1, 0, ""
        while self.at < len(self.text):
            character = self._advance()
            if character == "\\" and self.at < len(self.text):
                self._advance()
            elif quote:
                quote = "" if character == quote else quote
            elif character in "'\"" and not (opening == "{" and character == "'"):
                quote = character
            elif character == opening:
                depth += 1
            elif character == closing:
                depth -= 1
                if depth == 0:
                    return self.text[start : self.at - 1]
        self.notes.append(Note(line, "syntax", f"`{opening}` is never closed"))
        return self.text[start:]
