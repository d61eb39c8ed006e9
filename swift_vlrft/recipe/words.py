"""Expand a script's words as bash does: variables, defaults, arithmetic, splitting at blanks.

"$MODEL"    one word    $FLAGS    its words    "$@"    the arguments    $((N - 1))    a number

A word with anything else in it (an array, a pattern, braces, ``~``, ``${X%y}``, ``$1``, what a
program prints) stays as it is written and is not known, with the reason in its notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe.tree import Node, Note, Span

MACHINE_VARIABLES = re.compile(
    r"USER|LOGNAME|HOME|PWD|TMPDIR|LANG|(?:LOCAL_|NODE_)?RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT)"
    r"|CUDA_HOME|CONDA_PREFIX|(?:SLURM|PBS|LSB|OMPI|PMI|MLP|VC)_\w+|HOSTNAME|HOSTTYPE|SHELL|TERM"
    r"|S?RANDOM|SECONDS|EPOCH\w+|LINENO|E?UID|PPID|OSTYPE|OLDPWD|REPLY|SHLVL|BASH\w*|_"
)
"""Variables that a login, a scheduler, bash or the caller sets."""
MOST = 20_000
"""Characters of a value that is followed, and numbers of a sequence."""
PATTERN = re.compile(r"[*?]|\[.+\]|\{.*(?:,|\.\.).*\}")
"""Of files that match, or of several words."""
BLANKS, SPLIT, QUOTED = re.compile(r"[ \t\n]+"), "\4", "\5"
BY_RUN = "`--run` reads it"
SETS = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)")
"""What within an expansion assigns to a variable: ``${A:=1}``, ``$((A++))``."""
NAME = re.compile(r"(?:(?<![$\w])(?<!\$\{)|\$\{(?=\w+:?=))([A-Za-z_]\w*)")
"""A word that may name a variable which is set; none behind ``$``, which only reads it."""
ARITHMETIC = {
    **{"+": int.__add__, "-": int.__sub__, "*": int.__mul__},
    **{"/": int.__floordiv__, "%": int.__mod__},
}
NUMBER = re.compile(r"0|[1-9]\d{,17}")
EXPANSION = re.compile(r"(?s)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-?]).*)?\})")


@dataclass(frozen=True, slots=True)
class Value:
    """A value is an argument as the command gets it; not ``known``: as it is written in the file.

    ``many``: a word that is not known and may be any number of words. ``vanishes``: written without
    quotes and not set, so nothing unless it is set elsewhere. ``quoted``: of a piece of a word.
    """

    text: str
    line: int
    known: bool = True
    span: Span | None = None
    notes: tuple[Note, ...] = ()
    many: bool = False
    vanishes: bool = False
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable has a value, or None (not set). ``exported`` None: perhaps."""

    value: Value | None = None
    exported: bool | None = False


def unread(part: Node, why: str = f"only bash knows it; {BY_RUN}", many: bool = True) -> Value:
    """Return the value of a part of a word that is not known, with the reason."""
    note = Note(part.line, "unread", f"{part.text[:200]} is not read: {why}")
    return Value(part.text[:200], part.line, False, None, (note,), many)


def joined(pieces: Iterable[Value], line: int) -> Value:
    """Join the pieces of a word, without splitting and patterns, as in an assignment."""
    pieces = [*pieces]
    text = "".join(piece.text for piece in pieces)
    known = all(piece.known for piece in pieces) and len(text) <= MOST
    notes = tuple(dict.fromkeys(note for piece in pieces for note in piece.notes))
    return Value(text[:MOST], line, known, None, notes, any(piece.many for piece in pieces))


@dataclass(kw_only=True)
class Command:
    """A command is a `swift` command with the environment that it sees."""

    environment: dict[str, str]
    line: int = 1
    notes: list[Note] = field(default_factory=list)
    unknown: frozenset[str] = frozenset()
    """Variables that may be set, to a value that is not known."""
    lost: bool = False
    """Whether any variable that is not in ``environment`` may be set."""
    folder: Path | None = field(default_factory=Path.cwd)
    """Where the command runs; None: not known."""
    launcher: str = ""
    """What starts the processes instead of `swift`: torchrun, accelerate, python ..."""
    launched: tuple[str, str] = ("", "")
    """Processes per node and nodes, as given to the launcher; empty if not given."""
    words: list[Value] = field(default_factory=list)
    """From `swift` on."""
    made: str = ""
    """The text of the commands above it that may make files."""
    text: str = ""
    """The decoded file; spans count its characters."""


class Words:
    """Words expand by the variables and the arguments of a place in a script."""

    def __init__(self, environment: Mapping[str, str], arguments: Sequence[str]) -> None:
        self.variables = {n: Variable(Value(v, 1), True) for n, v in environment.items()}
        self.arguments: list[Value] | None = [Value(text, 1) for text in arguments]
        self.lost: Note | None = None
        """Why any variable may have any value since, where it is not assigned again."""
        self.notes: list[Note] = []

    def get(self, name: str) -> Variable:
        if self.lost and name not in self.variables:
            return Variable(Value(f"${name}", 0, False, None, (self.lost,), True), None)
        return self.variables.get(name, Variable())

    def forget(self, names: Iterable[str], note: Note) -> Note:
        """Take variables as unknown from here on, and return the note with their names."""
        names = {*names}
        note = replace(note, variable=" ".join(sorted(names)))
        for name in names:
            value = Value(f"${name}", note.line, False, None, (note,), True)
            self.variables[name] = Variable(value, self.get(name).exported or None)
        return note

    def expand(self, word: Node) -> list[Value]:
        """Return the arguments that a word becomes: none, a single argument, or several."""
        given = self.arguments
        if given is not None and (word.text == '"$@"' or (word.text == "$@" and not given)):
            return given
        pieces = [*self.pieces(word.Parts)]
        whole = replace(joined(pieces, word.line), span=word.span)
        one = pieces[0] if len(pieces) == 1 and not pieces[0].quoted else Value("", 0)
        if not whole.known:
            return [replace(whole, many=one.many or "@" in word.text, vanishes=one.vanishes)]
        bare = "".join(piece.text for piece in pieces if not piece.quoted)
        if PATTERN.search(bare) or ("IFS" in self.variables and "$" in word.text):
            why = f"it stands for several words, or for files that match; {BY_RUN}"
            return [replace(unread(word, why, False), span=word.span)]
        marked = (f"{QUOTED}{p.text}" if p.quoted else BLANKS.sub(SPLIT, p.text) for p in pieces)
        texts = [text.replace(QUOTED, "") for text in "".join(marked).split(SPLIT) if text]
        return [replace(whole, text=t, span=word.span if len(texts) == 1 else None) for t in texts]

    def pieces(self, parts: Sequence[Node], quoted: bool = False) -> Iterator[Value]:
        """Yield the pieces of a word; those that are not ``quoted`` are split at blanks."""
        for part in parts:
            if part.Type in ("ParamExp", "ArithmExp") and SETS.search(part.text):
                self.forget(NAME.findall(part.text), *unread(part).notes)
            if part.Type == "Lit":
                yield from self._literal(part, quoted, part is parts[0])
            elif part.Type == "SglQuoted" and not part.Dollar:
                text = part.text if quoted else part.Value or ""
                yield Value(text, part.line, quoted=True)
            elif part.Type == "DblQuoted":
                yield Value("", part.line, quoted=True)
                yield from self.pieces(part.Parts, True)
            elif part.Type == "ParamExp":
                yield from self._variable(part, quoted)
            else:
                printed = part.Type == "CmdSubst"
                text = self._printed(part) if printed else self._number(part.X)
                why = "only a program knows it" if printed else f"only bash knows it; {BY_RUN}"
                value = unread(part, why, many=printed)
                value = value if text is None else Value(str(text), part.line)
                yield replace(value, quoted=quoted)

    def _literal(self, part: Node, quoted: bool, first: bool) -> Iterator[Value]:
        text, line = part.Value, part.line
        if quoted:
            yield Value(re.sub(r'\\([$`"\\])', r"\1", text), line, quoted=True)
        elif re.search(r"[:=]~", text) or (first and text.startswith("~")):
            yield unread(part, f"it stands for a folder; {BY_RUN}", False)
        else:
            for match in re.finditer(r"\\(.)?|[^\\]+", text, re.DOTALL):
                escaped = match[0][0] == "\\"
                yield Value((match[1] or "") if escaped else match[0], line, quoted=escaped)

    def _variable(self, part: Node, quoted: bool) -> Iterator[Value]:
        """The value of $X, ${X}, ${X-d}, ${X:-d} and ${X:?m}; nothing else in braces is read."""
        form = EXPANSION.fullmatch(part.text)
        if not form:
            yield unread(part)
            return
        name, operator, line = form[1] or form[2], form[3] or "", part.line
        word = part.Exp.Word if part.Exp else None
        value = self.get(name).value
        if value and not (value.known and value.text == "" and operator[:1] == ":"):
            text = value.text if value.known else part.text
            yield replace(value, text=text, line=line, span=None, quoted=quoted)
        elif operator[-1:] == "-":
            yield from self.pieces(word.Parts if word else (), quoted)
        else:
            message = f": {word.text}" if word else ""
            kind = "needed" if operator or MACHINE_VARIABLES.fullmatch(name) else "unset"
            note = Note(line, kind, f"${name} is not set{message}", name)
            vanishes = kind == "unset" and not quoted
            value = Value(part.text, line, False, None, (note,), True, vanishes, quoted)
            if operator:  # whoever runs the script gives it
                self.notes.append(note)
                self.variables[name] = replace(self.get(name), value=value)
            yield value

    def _number(self, node: Node) -> int | None:
        """The value of an arithmetic expression of known numbers."""
        if node and node.Type == "ParenArithm":
            return self._number(node.X)
        if node and node.Type == "BinaryArithm":
            return calculated(self._number(node.X), node.Op, self._number(node.Y))
        value = joined(self.pieces(node.Parts), node.line) if node and node.Parts else None
        if value and value.known and value.text.isidentifier():
            value = self.get(value.text).value
        return number(value.text) if value and value.known else None

    def _printed(self, part: Node) -> str | None:
        """What a command substitution prints, where that is known without running it."""
        command = part.Stmts[0].Cmd if len(part.Stmts) == 1 else None
        if not command or command.Type != "CallExpr" or command.Assigns:
            return None if part.Stmts else ""  # `# a remark between two lines` \
        values = [value for word in command.Args for value in self.expand(word)]
        match [value.text for value in values if all(value.known for value in values)]:
            case ["vlrft", "plugin"]:
                return str(shipped_file("plugins", "vlrft.py"))
            case ["expr", first, *words] if {*words[::2]} == {"/"}:
                total = number(first)
                for divisor in words[1::2]:
                    total = calculated(total, "/", number(divisor))
                return None if total is None else str(total)
            case ["seq", *words]:
                between = words.pop(0)[2:] if words and words[0].startswith("-s") else "\n"
                ends: list[Any] = [1, *map(number, words)][-2:] if 0 < len(words) < 3 else [None]
                if None not in ends and ends[1] - ends[0] < MOST:
                    return between.join(map(str, range(ends[0], ends[1] + 1)))
        return None


def number(text: str) -> int | None:
    return int(text) if NUMBER.fullmatch(text) else None


def calculated(a: int | None, operator: str, b: int | None) -> int | None:
    """Compute as bash does; None for what is not known, or for a division of negative numbers."""
    if a is None or b is None or operator not in ARITHMETIC:
        return None
    if operator in "/%" and (a < 0 or b <= 0):
        return None
    total = ARITHMETIC[operator](a, b)
    return total if abs(total) < 10**18 else None
