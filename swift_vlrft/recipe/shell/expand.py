"""Expansion of words, as in bash: variables, defaults, splitting.

"$MODEL"    one    $FLAGS    its words    "${ARGS[@]}"    the items    ${SYS:-"two words"}    one

A word with a part that only bash knows is one ``Value`` that is not known, with the reason; so are
braces (``data/{a,b}.jsonl``) and patterns that files match (``data/*.jsonl``).
"""

from __future__ import annotations

import glob
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby

from swift_vlrft.recipe.shell.state import (
    NOTHING,
    May,
    State,
    Value,
    Variable,
    flags_of,
    notes_of,
    union,
    unread,
)
from swift_vlrft.recipe.shell.tree import ASSIGNMENT, MEANT, NAME, Node, Note

SUM = re.compile(r"\$\(\(\s*\$?\{?([A-Za-z_]\w*)\}?\s*([-+])\s*(\d{1,9})\s*\)\)")
CHANGES = re.compile(
    r"([A-Za-z_]\w*)(?:\[[^]]*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    r"|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
OF_THE_MACHINE = re.compile(
    r"USER|LOGNAME|HOME|TMPDIR|LANG|(?:LOCAL_|NODE_)?RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT)"
    r"|CUDA_HOME|CONDA_PREFIX|(?:SLURM|PBS|LSB|OMPI|PMI|MLP|VC)_\w+"
)
"""Variables that a login or a scheduler sets."""
MOST_WORDS = 1000
MOST_TEXT = 5_000_000
"""Characters that all words of a script may become, and for each of its pieces PIECE more."""
PIECE = 20
ENDLESS = "its words become too long a text to be followed"
LITERAL = re.compile(r"\\.?|~[\w.+-]*|[^\\~]+", re.DOTALL)
IN_QUOTES, IN_DOCUMENT = '$`"\\', "$`\\"
DEFAULTS = ("-", ":-", "=", ":=", "?", ":?", "+", ":+")
NOTHING_WRITTEN = Node({}, "", True)
BLANKS = (" ", "\t", "\n")


class TooLong(Exception):
    """Loops in loops, or a text that doubles (A=$A$A), beyond what is followed: line and why."""


class Expander(ABC):
    """Expands words at one point of a script.

    ``script`` is what ``$0`` stands for. ``quiet``: the same is read once more, without a word.
    """

    def __init__(
        self, state: State, substitutions: Mapping[str, Callable[[], str]], script: str | None
    ) -> None:
        self.state, self.substitutions, self.script = state, substitutions, script
        self.notes: list[Note] = []
        self.used, self.references = set[str](), set[str]()
        """Variables whose value was taken, and those that stand for another."""
        self.tested = set[str]()
        """Variables that a condition tests, so that it is no fault where they are not set."""
        self.quiet = self.inside = 0
        self.globs = True
        self._text = 0

    @abstractmethod
    def run(self, statements: Iterable[Node]) -> bool | None: ...

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]: ...

    @abstractmethod
    def run_text(self, text: str, line: int) -> None: ...

    def note(self, line: int, text: str, kind: str = "unread") -> None:
        if not self.quiet:
            self.notes.append(Note(line, kind, text))

    def lose(self, line: int, text: str) -> None:
        """Something that was not read may have set anything."""
        self.note(line, text)
        self.state.lose(Note(line, "unread", text))

    def expand(self, word: Node) -> list[Value]:
        """A word as the arguments that it becomes: none, one, or several."""
        if braced(word):
            may = None if re.search("[{,]-", word.text) else NOTHING
            value = unread(word.text, word.line, "its braces stand for several words", may)
            return [replace(value, span=word.span)]
        fields = self._fields(word, True, word.Pos.at)
        if any(not piece.known and not piece.quoted for one in fields for piece in one):
            fields = [[piece for one in fields for piece in one]]
        found = [self._finished(one, word) for one in fields]
        given = found and _listed(fields[0]) and found[0].known  # as it was written elsewhere
        if len(found) == 1 and found[0].span is None and not given:
            return [replace(found[0], span=word.span)]
        return found

    def _finished(self, values: list[Value], word: Node) -> Value:
        if _listed(values):
            return values[0]
        text = "".join(value.text for value in values)
        if not all(value.known for value in values):
            alone = len(values) == 1 and not values[0].quoted
            may = union(value.may for value in values if alone or value.listed)
            gone = alone and values[0].vanishes
            return Value(text, word.line, False, None, may, notes_of(values), gone)
        bare = "".join(value.text for value in values if not value.quoted)
        pattern = "".join(glob.escape(v.text) if v.quoted else v.text for v in values)
        if re.search(r"[*?]|\[.+\]", bare) and self._matches(pattern):
            return unread(word.text, word.line, "it stands for the files that match", NOTHING)
        return Value(text, word.line)

    def _matches(self, pattern: str) -> bool:
        """Whether files may match a pattern; if none does, it is kept as text."""
        try:
            folder = self.state.folder
            known = self.globs and (os.path.isabs(pattern) or folder is not None)
            return not known or bool(glob.glob(pattern.replace("[^", "[!"), root_dir=folder))
        except (OSError, ValueError, re.error):
            return True

    def joined(self, word: Node, start: int | None = None, quoted: str = "") -> Value:
        """A word without splitting and globs, as on the right of the assignment that begins at
        ``start``, or the text of a here-document.
        """
        fields = self._fields(word, False, word.Pos.at if start is None else start, quoted)
        values = [value for one in fields for value in one]
        known = all(value.known for value in values)
        text = " ".join("".join(value.text for value in one) for one in fields)
        may = NOTHING if known else flags_of(values)
        return Value(text, word.line, known, word.span, may, notes_of(values))

    def _fields(self, word: Node, splits: bool, start: int, quoted: str = "") -> list[list[Value]]:
        stream = self._stream(word.Parts, splits, start, quoted)
        stream = self._counted(stream, word.line)
        return [[v for v in one if v] for some, one in groupby(stream, bool) if some]

    def _counted(self, stream: Iterable[Value | None], line: int) -> Iterator[Value | None]:
        for value in stream:
            self._text += PIECE + (len(value.text) if value else 0)
            if self._text > MOST_TEXT:
                raise TooLong(line, ENDLESS)
            yield value

    def _stream(
        self, parts: Iterable[Node], splits: bool, start: int, quoted: str
    ) -> Iterator[Value | None]:
        """The pieces of a word, None where a new argument begins. ``quoted``: what a backslash
        escapes in quotes; empty outside of them.
        """
        for part in parts:
            whole = bool(quoted) or not splits
            if part.Type == "Lit":
                yield from self._literal(part, splits, start, quoted)
            elif part.Type == "SglQuoted" and not part.Dollar:
                text = part.text if quoted else part.Value or ""
                yield Value(text.translate(MEANT), part.line, quoted=True)
            elif part.Type == "DblQuoted":
                if not part.Parts:
                    yield Value("", part.line, quoted=True)
                yield from self._stream(part.Parts, splits, start, IN_QUOTES)
            elif isinstance(found := self._part(part, bool(quoted)), Node):  # of a default
                if quoted and not found.Parts:
                    yield Value("", part.line, quoted=True)
                inner = found.Pos.at if found.Parts else start
                yield from self._stream(found.Parts, splits, inner, quoted and quoted + "}")
            else:
                for i, value in enumerate(found):
                    if i:
                        yield None
                    if not whole and value.text and "IFS" in self.state.variables:
                        value = unread(part.text, part.line, "IFS splits it")
                    value = replace(value, quoted=whole, listed=_lists(part))
                    yield from [value] if whole or not value.known else _split(value)

    def _literal(self, part: Node, splits: bool, start: int, quoted: str) -> Iterator[Value | None]:
        line, text = part.line, part.Value.translate(MEANT)
        if quoted:
            text = re.sub(rf"\\([{re.escape(quoted)}])", r"\1", text)
            yield Value(text, line, quoted=True)
            return
        if match := re.search("\1[^\2]*\2", part.Value):
            name = match[0].translate(MEANT)
            why = f"{name} is a placeholder (bash reads `<` as a redirection): put the value in its"
            self.note(line, f"{why} place", "placeholder")
            yield Value(text, line, False, quoted=not splits)
            return
        before = part.source[start : part.Pos.at]
        for match in LITERAL.finditer(text):
            piece, behind = match[0], text[match.end() :] or part.source[part.End.at :]
            home = not before or (ASSIGNMENT.match(before) and before[-1] in "=:")
            if piece[0] == "\\":
                yield Value(piece[1:], line, quoted=True)
            elif piece == "~" and home and behind[:1] not in ("'", '"', "$", "\\"):
                items = self.state.get("HOME").items or (Value(os.path.expanduser("~"), line),)
                yield replace(items[0], quoted=True, listed=False)
            elif piece in ("~+", "~-") and home:
                yield replace(_not_known(part, NOTHING), quoted=not splits)
            else:
                piece = os.path.expanduser(piece) if home and len(piece) > 1 else piece
                value = Value(piece, line, quoted=not splits)
                yield from _split(value) if splits else [value]
            before += piece

    def _part(self, part: Node, quoted: bool) -> Sequence[Value] | Node:
        """What an expansion stands for; the word of a default where it takes its place."""
        if part.Type == "ParamExp":
            return self._variable(part, quoted)
        with self.alone():
            self.run(part.Stmts)
        if part.Type == "CmdSubst":
            text = self._printed(part.Stmts)
            return [_not_known(part) if text is None else Value(text, part.line)]
        if (total := self._sum(part.text)) is not None:
            return [Value(total, part.line)]
        self.changes(part.text, part.line)
        return [_not_known(part, NOTHING)]

    def changes(self, arithmetic: str, line: int) -> None:
        """Variables that an arithmetic expression sets have a value that was not read."""
        for match in CHANGES.finditer(arithmetic):
            self.unknown(match[1] or match[2], line, arithmetic, NOTHING)

    def unknown(self, name: str, line: int, by: str, may: May = None) -> None:
        if NAME.fullmatch(name):
            self.used.discard(name)
            value = unread(f"${name}", line, f"`{by}` sets it", may)
            self.state.set(name, Variable((value,)))

    def _variable(self, part: Node, quoted: bool) -> Sequence[Value] | Node:
        name, index, exp = part.Param.Value, _index(part), part.Exp
        self.used.add(name)
        odd = part.Excl or part.Slice or part.Repl or part.Names or part.Width
        if odd or not re.fullmatch(r"[@*]|\d*", index) or (exp and exp.Op not in DEFAULTS):
            return [_not_known(part)]
        if name in ("!", "?", "$", "-"):
            return [Value(part.text, part.line, False)]  # of the running shell
        items = self._items(part, index)
        every = name in ("@", "*") or index in ("@", "*")
        if part.Length:
            if not items or not all(v.known for v in items):
                return [_not_known(part, NOTHING)]
            return [Value(str(len(items) if every else len(items[0].text)), part.line)]
        operator, lists = exp.Op if exp else "", _lists(part)
        if any(not v.known for v in items) and not (quoted and lists and not operator):
            may = flags_of(items)
            if operator:  # the default may stand there, or what is said in place of it
                default = exp.Word.text if exp.Word else ""
                plain = Value(re.sub("[\"']", "", default), part.line)
                may = union([may, None if re.search(r"[$`]", default) else flags_of([plain])])
            notes = notes_of(items) or _not_known(part).notes
            return [Value(part.text, part.line, False, None, may, notes)]
        usable = bool(items) and ([v.text for v in items] != [""] or operator[:1] != ":")
        if operator.endswith("+"):
            return (exp.Word or exp) if usable else NOTHING_WRITTEN
        if usable or (every and not operator):
            joins = quoted and every and not lists
            return [Value(" ".join(v.text for v in items), part.line)] if joins else items
        return self._missing(part, operator, index)

    def _missing(self, part: Node, operator: str, index: str) -> Sequence[Value] | Node:
        """A variable that is not set, or empty behind a colon."""
        name, exp, line = part.Param.Value, part.Exp, part.line
        if operator.endswith("-"):
            return exp.Word or NOTHING_WRITTEN
        if operator.endswith("="):
            value = self.joined(exp.Word) if exp.Word else Value("", line)
            self.state.set(name, Variable((value,)))
            return [replace(value, text=value.text if value.known else part.text)]
        if operator.endswith("?"):
            message = re.sub("[\"']", "", exp.Word.text) if exp.Word else ""
            why = f"${name} is not set{': ' * bool(message)}{message}"
            value = unread(part.text, line, why, NOTHING, "needed")
            self.note(line, why, "needed")
            self.state.set(name, Variable((value,)))
            return [value]
        if index not in ("", "0"):
            return []
        if name.isdigit():  # nothing in a function; the script itself was given none
            why = f"${name}, an argument, is not given"
            return [] if self.inside else [unread(part.text, line, why, NOTHING, "needed")]
        kind = "needed" if OF_THE_MACHINE.fullmatch(name) or name in self.tested else "unset"
        return [unread(part.text, line, f"${name} is not set", NOTHING, kind, True)]

    def _items(self, part: Node, index: str) -> tuple[Value, ...]:
        """The values of a name and its index; none if it is not set."""
        name, line, arguments = part.Param.Value, part.line, self.state.arguments
        if name == "PWD" and self.state.folder is not None:
            return (Value(self.state.folder, line),)
        if name == "0" or (name == "BASH_SOURCE" and index in ("", "0")):
            return (Value(self.script, line),) if self.script else (_not_known(part),)
        if name.isdigit() or name in "@*#":
            if arguments is None or (name == "#" and not all(a.known for a in arguments)):
                return (unread(part.text, line, "the arguments are not known"),)
            if name == "#":
                return (Value(str(len(arguments)), line),)
            return arguments if name in "@*" else arguments[int(name) - 1 : int(name)]
        variable = self.state.get(name)
        if index in ("@", "*") or not variable.known:
            return variable.items
        at = int(index or 0)
        return variable.items[at : at + 1]

    def _printed(self, statements: Sequence[Node]) -> str | None:
        """What a command substitution prints, where that is known without running it."""
        if not statements:
            return ""  # `# a remark between two lines` \
        if len(statements) > 1:
            return None
        command, folder = statements[0].Cmd, self.state.folder
        if command and command.Op == "&&":
            moves, shows = self._argv(command.X), self._argv(command.Y)
            if len(moves) != 2 or moves[0] != "cd" or folder is None:
                return None
            folder = os.path.normpath(os.path.join(folder, moves[1]))
            shown = os.path.isdir(folder) and shows in (["pwd"], ["pwd", "-P"])
            return folder if shown else None
        argv = self._argv(statements[0])
        if (known := self.substitutions.get(" ".join(argv))) is not None:
            return known()
        match argv:
            case ["pwd"]:
                return folder
            case ["dirname", path]:
                return os.path.dirname(path.rstrip("/")) or ("/" if path[:1] == "/" else ".")
            case ["basename", path]:
                return os.path.basename(path.rstrip("/"))
            case ["seq", "-s,", first, last] if re.fullmatch(r"\d{1,9} \d{1,9}", f"{first} {last}"):
                if int(last) - int(first) < MOST_WORDS:
                    return ",".join(map(str, range(int(first), int(last) + 1)))
        return None

    def _argv(self, statement: Node) -> list[str]:
        """A plain command's words; none if one of them is not known."""
        command = statement.Cmd
        if not command or command.Assigns or any("<<" in r.Op for r in statement.Redirs):
            return []
        values = [value for word in command.Args for value in self.expand(word)]
        return [value.text for value in values] if all(value.known for value in values) else []

    def _sum(self, text: str) -> str | None:
        """The value of ``$((NAME + 1))`` and ``$((NAME - 1))``; None for other arithmetic."""
        match = SUM.fullmatch(text)
        value = self.state.get(match[1]).text if match else None
        if match is None or not re.fullmatch(r"[1-9]\d{0,8}", value or ""):
            return None
        self.used.add(match[1])
        return str(int(value or 0) + int(match[2] + match[3]))


def _split(value: Value) -> list[Value | None]:
    """Each word of a text that stands without quotes."""
    text, words = value.text, value.text.split()
    if words == [text]:
        return [value]
    stream: list[Value | None] = [None] * text.startswith(BLANKS)
    for word in words:
        stream += [replace(value, text=word, span=None), None]
    return stream if text.endswith(BLANKS) else stream[:-1]


def _listed(one: Sequence[Value]) -> bool:
    """Whether an argument is an item, as it was written where the list was."""
    return len(one) == 1 and one[0].listed


def _lists(part: Node) -> bool:
    """Whether an expansion may be several words in quotes, too."""
    every = part.Type == "ParamExp" and (part.Param.Value == "@" or _index(part) == "@")
    return every and not part.Length


def _index(part: Node) -> str:
    """The index of ``${NAME[INDEX]}``, or nothing."""
    found = re.match(r"\[([^]]*)\]", part.source[part.Param.End.at : part.End.at])
    return found[1] if found and part.Index else ""


def _not_known(part: Node, may: May = None) -> Value:
    return unread(part.text, part.line, "its value is known only to bash", may)


def braced(word: Node) -> bool:
    """Whether a word may be several by its braces: ``data/{a,b}.jsonl``, ``{1..3}``."""
    bare = "".join(re.sub(r"\\.", "", p.Value) for p in word.Parts if p.Type == "Lit")
    return re.search(r"\{.*(,|\.\.).*\}", bare) is not None
