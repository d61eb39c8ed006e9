"""Bash text to words and commands: one parser, as words hold commands and commands words.

--model "$MODEL" \
    --x 1                        words --model (line 1), "$MODEL", --x (line 2), 1
[ -n "$A" ] && export X=1        Chain(Simple [ ..., ("&&", Simple export ...))
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable

from swift_vlrft.recipe.shell.words import (
    ASSIGNMENT,
    Branch,
    Chain,
    Function,
    Group,
    Loop,
    Node,
    Note,
    Part,
    Simple,
    Span,
    Word,
)

BARE = "|&;()<> \t\r\n"
END = r"(?=[|&;()<>\s]|\Z)"
BLANK = re.compile(r"[ \t\r]+|\\[ \t\r]*(?:\n|\Z)|#[^\n]*")
CONTINUED = re.compile(r"\\[ \t\r]*(?:\n|\Z)")
LITERAL = re.compile(r"[^\\'\"$`~|&;()<>\s{}]+|.", re.DOTALL)
QUOTED = re.compile(r"[^\\\"$`}]+|.", re.DOTALL)
PLACEHOLDER = re.compile(r"<[A-Za-z][\w-]*(?: [\w-]+)*>")
PROCESS = re.compile(r"[<>]\(")
HOME = re.compile(r"~[\w.+-]*")
PARAMETER = re.compile(r"\$([A-Za-z_]\w*|[@*#?$!0-9-])")
BRACED = re.compile(r"\$\{(#?)([A-Za-z_]\w*|\d+|[@*#?$!-])(\[(?:[@*]|\d+)\])?(:?[-=?+])?")
BACKQUOTED = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
REDIRECT = re.compile(
    r"(?:&>>?|(?:\d(?:\d|\\\n)*|\{[A-Za-z_]\w*\})?"
    r"(<<<|<<-?|>>|<&|>&|>\||<>|<(?!\()|>(?!\()))[ \t]*"
)
"""In `1&>log` the 1 is a word: only what begins with < or > takes a number in front."""
PREFIX = re.compile(rf"(!|time(?:[ \t]+-p)?){END}[ \t]*")
AND_OR = re.compile(r"&&|\|\|")
PIPE = re.compile(r"\|&?(?!\|)")
BACKGROUND = re.compile(r"&(?!&)")
ARM_ENDS = re.compile(r";;&?|;&")
PARENTHESES = re.compile(r"\(\s*\)")
COMPOUND = re.compile(rf"(\{{|\[\[|if|case|for|select|while|until|function){END}")
CLOSING = ("then", "elif", "else", "fi", "do", "done", "esac", "}")
DEPTH = 60


class _Unreadable(Exception):
    """Where bash would end with a syntax error."""


class Parser:
    """``line``: where a text stands that is none of the file, so that its words have no span.
    Carriage returns and a byte order mark count as blanks.
    """

    def __init__(self, text: str, line: int = 0, depth: int = 0) -> None:
        self.text, self.at, self.depth = text, int(text.startswith("\ufeff")), depth
        self.notes: list[Note] = []
        self._line = line
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._documents: list[tuple[Simple, Word, bool]] = []

    def script(self) -> list[Node]:
        """All commands, up to the first mistake, which is noted."""
        found: list[Node] = []
        try:
            self.commands(into=found)
        except _Unreadable as error:
            self.notes.append(Note(error.args[1], "syntax", f"{error.args[0]}: nothing below read"))
        return found

    @property
    def line(self) -> int:
        return self._line or 1 + bisect_left(self._ends, self.at)

    def ahead(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Pass what the pattern matches here."""
        if match := pattern.match(self.text, self.at):
            self.at = match.end()
        return match

    def blanks(self) -> None:
        """Skip blanks, comments and backslashes at the end of a line."""
        line = self.line
        while match := self.take(BLANK):
            if match[0][0] == "\\" and match[0].strip("\\\r\n"):
                why = "a blank follows the backslash, so the line does not go on: everything below "
                self.notes.append(Note(line, "continuation", why + "is lost. Delete the blank"))
            line = self.line

    def _expected(self, text: str, otherwise: str = "", line: int = 0) -> None:
        """Pass a word or bracket that must stand here."""
        if not self._passed(text):
            raise _Unreadable(otherwise or f"`{text}` is missing", line or self.line)

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH:
            raise _Unreadable("commands are nested too deeply", self.line)

    # Words -------------------------------------------------------------------------------------

    def word(self) -> Word:
        """The word that begins here; an empty one where none does."""
        start, line, array = self.at, self.line, None
        parts = self.parts(BARE)
        if self.ahead() == "(" and ASSIGNMENT.fullmatch(self.text[start : self.at]):
            self.at += 1
            array = tuple(self._words(")", self._gap))
            self._closed(")", "`(`", line)
        span = None
        if not self._line and self.at > start:
            literal = array is None and all(
                p.kind == "text" and (p.quoted or not set(p.text) & set("*?[{~")) for p in parts
            )
            span = Span(start, self.at, literal)
        return Word(line, parts, self.text[start : self.at], span, array)

    def parts(self, stop: str, quoted: bool = False) -> tuple[Part, ...]:
        """The pieces up to a character of ``stop`` (or the end), which is not passed."""
        found, start = list[Part](), self.at
        while self.at < len(self.text):
            character = self.ahead()
            if not quoted and (match := self.take(PLACEHOLDER)):
                why = "is a placeholder (bash reads `<` as a redirection): put the value in its "
                self.notes.append(Note(self.line, "placeholder", f"{match[0]} {why}place"))
                found.append(Part("odd", match[0]))
            elif not quoted and (match := self.take(PROCESS)):
                nodes = self._until_bracket()
                found.append(Part("odd", self.text[match.start() : self.at], nodes=nodes))
            elif character in stop:
                break
            elif character == "\\":
                if not quoted and (match := CONTINUED.match(self.text, self.at)):
                    if match[0] not in ("\\\n", "\\\r\n"):
                        break
                    self.at = match.end()
                else:
                    found += self._escaped(stop, quoted)
            elif character == "'" and not quoted:
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise _Unreadable("the quote ' is never closed", self.line)
                found.append(Part("text", self.text[self.at + 1 : end], True))
                self.at = end + 1
            elif character == '"' and (not quoted or "}" in stop):
                line = self.line
                self.at += 1
                found += self.parts('"', True) or [Part("text", "", True)]
                self._closed('"', 'the quote "', line)
            elif character in "$`":
                self._deeper()
                found += self._dollar(quoted)
                self.depth -= 1
            elif not quoted and (match := HOME.match(self.text, self.at)):
                found.append(self._home(self.text[start : self.at], match[0]))
                self.at = match.end()
            elif match := self.take(QUOTED if quoted else LITERAL):
                found.append(Part("text", match[0], quoted))
        return tuple(found)

    def _closed(self, character: str, what: str, line: int) -> None:
        if self.ahead() != character:
            raise _Unreadable(f"{what} is never closed", line)
        self.at += 1

    def _escaped(self, stop: str, quoted: bool) -> list[Part]:
        following = self.text[self.at + 1 : self.at + 2]
        if quoted and following not in {*"$`\\\n", *stop, *('"' * ("}" in stop))}:
            self.at += 1
            return [Part("text", "\\", True)]
        self.at += 2
        return [] if quoted and following == "\n" else [Part("text", following, True)]

    def _home(self, before: str, text: str) -> Part:
        """``~`` at the beginning of a word, and behind the = and : of an assignment."""
        if before and not (ASSIGNMENT.match(before) and before[-1] in "=:"):
            return Part("text", text)
        if text != "~":
            return Part("odd" if text in ("~+", "~-") else "text", os.path.expanduser(text))
        quoted = self.text[self.at + 1 : self.at + 2] in ("'", '"', "$", "\\")
        return Part("text", text) if quoted else Part("variable", "HOME", True, name="HOME")

    def _dollar(self, quoted: bool) -> list[Part]:
        """An expansion, or a $ that is none."""
        start, line = self.at, self.line
        if match := self.take(BACKQUOTED):
            inside = re.sub(r"\\([`$\\])", r"\1", match[1])
            inner = Parser(inside, line, self.depth)
            part = Part("run", inside, quoted, tuple(inner.commands()))
            self.notes += inner.notes
        elif self.ahead(3) == "$((" and (total := self._arithmetic(start + 1)) is not None:
            part = Part("odd", f"$(({total}))", quoted)
        elif self.ahead(2) == "$(":
            self.at += 2
            nodes = self._until_bracket()
            part = Part("run", self.text[start + 2 : self.at - 1], quoted, nodes)
        elif self.ahead(2) == "${":
            match = self.take(BRACED)
            self.at += 0 if match else 2
            word = self.parts("}", quoted)
            self._closed("}", "`{`", line)
            inside = self.text[start + 2 : self.at - 1]
            name = match[2] if match else ""
            part = Part("variable", inside, quoted, name=name, operator="odd")
            if match and (match[4] or not word):
                operator, index = match[4] or match[1], match[3] or ""
                part = Part("variable", inside, quoted, (), name, index, operator, word)
        elif not quoted and (match := self.take(ANSI)):
            part = Part("odd", match[0], True)
        elif match := self.take(PARAMETER):
            part = Part("variable", match[1], quoted, name=match[1])
        elif self.ahead() == "`":
            raise _Unreadable("the quote ` is never closed", line)
        else:
            self.at += 1
            return [] if not quoted and self.ahead() == '"' else [Part("text", "$", quoted)]
        return [part]

    def _words(self, ends: str, skip: Callable[[], None]) -> list[Word]:
        """Words up to one of the characters, or the word, that ends them."""
        words = list[Word]()
        skip()
        while self.at < len(self.text):
            if self._sees(ends) if ends == "]]" else self.ahead() in ends:
                break
            word = self.word()
            words += [word] if word.text else []
            self.at += not word.text
            skip()
        return words

    def _arithmetic(self, start: int) -> str | None:
        """The inside of the ``((...))`` at ``start``, passed; None if it is not one."""
        depth = 0
        for at in range(start, len(self.text)):
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            if depth == 0:
                if self.text[at - 1] != ")":
                    return None
                self.at = at + 1
                return self.text[start + 2 : at - 1]
        return None

    def _until_bracket(self) -> tuple[Node, ...]:
        line = self.line
        nodes = self.commands(")")
        self._closed(")", "`(`", line)
        return tuple(nodes)

    # Commands ----------------------------------------------------------------------------------

    def commands(self, *closing: str, into: list[Node] | None = None) -> list[Node]:
        """Commands up to one of the words or brackets that close, which is not passed."""
        found = [] if into is None else into
        self._deeper()
        self._gap()
        while self.at < len(self.text) and not any(map(self._sees, closing)):
            before = self.at
            if node := self._chain():
                found.append(node)
            if self.at == before:
                word = re.compile(rf"[^{BARE}]+|.", re.DOTALL).match(self.text, before)
                text = word[0] if word else ""
                raise _Unreadable(f"`{text}` is not expected here", self.line)
            self._gap()
        self.depth -= 1
        return found

    def _gap(self) -> None:
        """Skip blanks, ends of lines and single semicolons."""
        while True:
            self.blanks()
            if self.ahead() == "\n":
                self._newline()
            elif self.ahead() == ";" and not ARM_ENDS.match(self.text, self.at):
                self.at += 1
            else:
                return

    def _newline(self) -> None:
        """Over the end of a line and the here-documents that begin below it."""
        self.at += 1
        waiting, self._documents = self._documents, []
        for simple, word, tabs in waiting:
            rows, line, end = [], self.line, "".join(part.text for part in word.parts)
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at) % (len(self.text) + 1)
                row = self.text[self.at : stop]
                self.at = min(stop + 1, len(self.text))
                row = row.lstrip("\t") if tabs else row
                if row.rstrip("\r") == end:
                    break
                rows.append(row)
            text = "\n".join([*rows, ""])
            inner = Parser(text, line, self.depth)
            quoted = any(part.quoted for part in word.parts)
            parts = (Part("text", text, True),) if quoted else inner.parts("", True)
            simple.fed = Word(line, parts, text)

    def _sees(self, text: str) -> bool:
        """Whether it stands here: a bracket, or a word of its own."""
        behind = self.text[self.at + len(text) : self.at + len(text) + 1]
        return self.ahead(len(text)) == text and (text in (")", ";;", ";&") or behind in BARE)

    def _passed(self, text: str) -> bool:
        """Pass a word, where it stands here."""
        self._gap()
        found = self._sees(text)
        self.at += len(text) * found
        return found

    def _chain(self) -> Node | None:
        line, rest = self.line, []
        first = self._pipe()
        self.blanks()
        while first and (match := self.take(AND_OR)):
            self._gap()
            following = self._pipe()
            if following is None:
                raise _Unreadable(f"nothing follows `{match[0]}`", self.line)
            rest.append((match[0], following))
            self.blanks()
        background = first is not None and self.take(BACKGROUND) is not None
        return (
            Chain(line, first, rest, False, background) if first and (rest or background) else first
        )

    def _pipe(self) -> Node | None:
        line, negated, parts = self.line, False, list[Node]()
        while match := self.take(PREFIX):
            negated ^= match[1] == "!"
        while part := self._command():
            parts.append(part)
            self.blanks()
            if not self.take(PIPE):
                break
            self._gap()
        else:
            if not parts:
                return None
            raise _Unreadable("nothing follows `|`", self.line)
        node = parts[0]
        if len(parts) > 1:
            node = Group(line, [Group(line, [part], True) for part in parts])
        return Chain(line, node, [], negated=True) if negated else node

    def _command(self) -> Node | None:
        self._deeper()
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
        if arithmetic := self._tested():
            return arithmetic
        if self.ahead() == "(":
            self.at += 1
            return Group(line, list(self._until_bracket()), True)
        if not (match := self.take(COMPOUND)):
            return None
        match match[1]:
            case "{":
                body = self.commands("}")
                self._expected("}")
                return Group(line, body)
            case "[[":
                words = self._words("]]", self._gap)
                self._expected("]]")
                return _test(line, *words)
            case "if":
                return self._if(line)
            case "case":
                return self._case(line)
            case "function":
                self.blanks()
                name = self.word().text
                self.blanks()
                self.take(PARENTHESES)
                return self._function(line, name)
            case "while" | "until":
                return self._loop(line, match[1], None, [], self.commands("do", *CLOSING))
        self.blanks()
        if arithmetic := self._tested():
            return self._loop(line, match[1], None, [], [arithmetic])
        name, words = self.word().text, list[Word]()
        if self._passed("in"):
            words = self._words(";\n&|()<>", self.blanks)
        return self._loop(line, match[1], name, words, [])

    def _tested(self) -> Simple | None:
        """``((...))``."""
        line = self.line
        inside = self._arithmetic(self.at) if self.ahead(2) == "((" else None
        return None if inside is None else _test(line, Word(line, (Part("odd", inside),), inside))

    def _if(self, line: int) -> Node:
        arms: list[tuple[list[Node], list[Node]]] = []
        while not arms or self._passed("elif"):
            condition = self.commands(*CLOSING)
            self._expected("then")
            arms.append((condition, self.commands("elif", "else", "fi")))
        if complete := self._passed("else"):
            arms.append(([], self.commands("fi")))
        self._expected("fi")
        return Branch(line, "if", arms, complete)

    def _case(self, line: int) -> Node:
        self.blanks()
        condition: list[Node] = [_test(line, self.word())]
        self._expected("in")
        arms, complete = list[tuple[list[Node], list[Node]]](), False
        while self.at < len(self.text) and not self._passed("esac"):
            self.at += self.ahead() == "("
            start, depth = self.at, 0
            while self.at < len(self.text) and (depth or self.ahead() not in ")\n"):
                depth += {"(": 1, ")": -1}.get(self.ahead(), 0)
                if self.ahead() in BARE or not self.word().text:
                    self.at += 1
            patterns = self.text[start : self.at].split("|")
            self._expected(")", "`)` is missing behind a pattern")
            arms.append((condition, self.commands(";;", ";&", "esac")))
            condition = []
            if (end := self.take(ARM_ENDS)) and end[0] != ";;":
                raise _Unreadable(f"a `case` with `{end[0]}` is not followed", self.line)
            complete |= any(pattern.strip() == "*" for pattern in patterns)
        return Branch(line, "case", arms or [(condition, [])], complete)

    def _loop(
        self, line: int, kind: str, name: str | None, words: list[Word], condition: list[Node]
    ) -> Node:
        closing = "}" if self._passed("{") else "done"
        if closing == "done":
            self._expected("do")
        body = self.commands(closing)
        self._expected(closing)
        return Loop(line, kind, name, words, condition, body)

    def _function(self, line: int, name: str) -> Node:
        self._gap()
        body = self._command()
        if body is None:
            raise _Unreadable(f"the function {name} has no body", line)
        return Function(line, name, body)

    def _simple(self) -> Node | None:
        simple, start = Simple(self.line), self.at
        while self.at < len(self.text):
            self.blanks()
            if len(simple.words) == 1 and not simple.assigned and self.take(PARENTHESES):
                return self._function(simple.line, simple.words[0].text)
            if not PLACEHOLDER.match(self.text, self.at) and self._redirection(simple):
                continue
            if not simple.words and not simple.assigned:
                if any(map(self._sees, CLOSING)):
                    return None
                simple.line = self.line
            word = self.word()
            if not word.text:
                break
            first = not simple.words and ASSIGNMENT.match(word.text)
            (simple.assigned if first else simple.words).append(word)
        simple.last_line, simple.ends_with_line = self.line, self.ahead() == "\n"
        return simple if self.at > start else None

    def _redirection(self, simple: Simple) -> bool:
        match = self.take(REDIRECT)
        if match is None:
            return False
        word = self.word()
        if not word.text:
            raise _Unreadable(f"nothing follows `{match[0]}`", self.line)
        if match[1] in ("<<", "<<-"):
            self._documents.append((simple, word, match[1] == "<<-"))
        elif match[1] == "<<<":
            simple.fed = word
        else:
            simple.redirected.append(word)
            simple.appends |= ">>" in match[0]
        return True


def _test(line: int, *words: Word) -> Simple:
    return Simple(line, [Word(line, (Part("text", "test"),), "test"), *words])
