"""Expand a script's words as bash does: variables, defaults, arrays, splitting, arithmetic.

"$MODEL"    one word    $FLAGS    its words    "${ARGS[@]}"    the items    $((N - 1))    a number

A word with a part that is not known stays as it is written, with the reason in its notes; so does a
word with braces (``data/{a,b}.jsonl``) or a pattern that files match (``data/*.jsonl``).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe.arithmetic import ARITHMETIC, expression, sequence
from swift_vlrft.recipe.tree import MEANT, Node, Note, Span

BASH_VARIABLES = re.compile(
    r"HOSTNAME|HOSTTYPE|SHELL|TERM|S?RANDOM|SECONDS|EPOCH\w+|LINENO|E?UID|PPID|OSTYPE|MACHTYPE"
    r"|OLDPWD|REPLY|OPTARG|OPTIND|FUNCNAME|PIPESTATUS|MAPFILE|COPROC|SHLVL|BASH\w+|_"
)
"""Variables that bash sets."""
MACHINE_VARIABLES = re.compile(
    r"USER|LOGNAME|HOME|TMPDIR|LANG|(?:LOCAL_|NODE_)?RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT)"
    r"|CUDA_HOME|CONDA_PREFIX|(?:SLURM|PBS|LSB|OMPI|PMI|MLP|VC)_\w+"
)
"""Variables that a login or a scheduler sets."""
MOST = 20_000
"""Characters of a value that is followed, and a twentieth of it items of an array."""
CHANGES = re.compile(
    r"([A-Za-z_]\w*)(?:\[[^]]*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    r"|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
"""An assignment within arithmetic."""
OPERATORS = ("-", ":-", "=", ":=", "?", ":?", "+", ":+")
BY_RUN = "`--run` reads it"


@dataclass(frozen=True, slots=True)
class Value:
    """A value is an argument as the command gets it; not ``known``: as it is written in the file.

    ``many``: a word that is not known and may be any number of words. ``vanishes``: written without
    quotes and not set, so nothing unless it is set elsewhere. Of a piece of an argument:
    ``quoted``, or ``listed``, an item of "$@" or "${ARRAY[@]}".
    """

    text: str
    line: int
    known: bool = True
    span: Span | None = None
    notes: tuple[Note, ...] = ()
    many: bool = False
    vanishes: bool = False
    quoted: bool = False
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable has a value, an array's values, or none (not set). ``exported`` None: perhaps.
    ``line``: where it is set, 0 by the caller.
    """

    items: tuple[Value, ...] = ()
    array: bool = False
    exported: bool | None = False
    line: int = 0

    @property
    def text(self) -> str | None:
        """Return the value of a variable that is set, is no array, and is known."""
        known = self.items and not self.array and self.items[0].known
        return self.items[0].text if known else None


def unread(text: str, line: int, why: str, many: bool = True, variable: str = "") -> Value:
    """Return a value that is not known, with the reason."""
    note = Note(line, "unread", f"{text} is not read: {why}", variable)
    return Value(text, line, False, None, (note,), many)


def notes_of(values: Iterable[Value]) -> tuple[Note, ...]:
    return tuple(dict.fromkeys(note for value in values for note in value.notes))


def any_exported(*exported: bool | None) -> bool | None:
    """Say whether a variable is exported: for a reason of these, perhaps (None), or not."""
    return True if True in exported else None if None in exported else False


def braced(word: Node) -> bool:
    """Say whether braces may make several words of it: ``data/{a,b}.jsonl``, ``{1..3}``."""
    bare = "".join(re.sub(r"\\.", "", p.Value) for p in word.Parts if p.Type == "Lit")
    return re.search(r"\{.*(,|\.\.).*\}", bare) is not None


def parameters(words: Iterable[Node]) -> Iterator[str]:
    """Return the names of all variables in words."""
    return (n.Param.Value for word in words for n in word.walk() if n.Type == "ParamExp")


@dataclass
class Words:
    """Words expand by the variables, the arguments and the folder (None: not known) of a place
    in a script. ``script`` is what ``$0`` stands for.
    """

    variables: dict[str, Variable]
    arguments: tuple[Value, ...] | None
    folder: str | None
    script: str = ""
    exports_all: bool | None = False
    globs: bool = True
    """Whether patterns work as in bash without `shopt`."""
    lost: Note | None = None
    """Why any variable may have any value since, where it is not assigned again."""
    conditional: dict[str, Note] = field(default_factory=dict)
    """Variables that are set where it is not known whether it runs, and why."""
    exports: set[str] = field(default_factory=set)
    """Variables that the script may export."""
    notes: list[Note] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Variables whose value was taken."""
    tested: set[str] = field(default_factory=set)
    """Variables that a condition tests, so that it is no fault where they are not set."""

    def get(self, name: str) -> Variable:
        variable = self.variables.get(name)
        if name in self.conditional:
            exported = (variable and variable.exported) or (None if name in self.exports else False)
            value = Value(f"${name}", 0, False, None, (self.conditional[name],), True)
            return Variable((value,), False, exported, variable.line if variable else 0)
        if variable is None and (self.lost or BASH_VARIABLES.fullmatch(name)):
            notes = (self.lost,) if self.lost else ()
            return Variable((Value(f"${name}", 0, False, None, notes, True),), exported=None)
        return variable or Variable()

    def expand(self, word: Node) -> list[Value]:
        """Return the arguments that a word becomes: none, a single argument, or several."""
        if braced(word):
            value = unread(word.text, word.line, f"its braces stand for several words; {BY_RUN}")
            return [replace(value, span=word.span)]
        fields = self._fields(word, True)
        if any(not piece.known and not piece.quoted for pieces in fields for piece in pieces):
            fields = [[piece for pieces in fields for piece in pieces]]
        values = [self._finished(pieces, word) for pieces in fields]
        listed = values and len(fields[0]) == 1 and fields[0][0].listed and values[0].known
        if len(values) == 1 and values[0].span is None and not listed:
            return [replace(values[0], span=word.span)]
        return values

    def _finished(self, pieces: Sequence[Value], word: Node) -> Value:
        if len(pieces) == 1 and pieces[0].listed:
            return pieces[0]
        text = "".join(piece.text for piece in pieces)
        if len(text) > MOST:
            return unread(word.text[:60], word.line, "it is too long")
        if not all(piece.known for piece in pieces):
            alone = len(pieces) == 1 and not pieces[0].quoted
            gone = alone and pieces[0].vanishes
            many = alone and pieces[0].many
            return Value(text, word.line, False, None, notes_of(pieces), many, gone)
        pattern = "".join(glob.escape(p.text) if p.quoted else p.text for p in pieces)
        folder, bare = self.folder, "".join(p.text for p in pieces if not p.quoted)
        matches = re.search(r"[*?]|\[.+\]", bare)
        odd = folder is None or not self.globs or re.search(r"\[[\[^!]|\*\*", bare)
        if matches and (odd or glob.glob(pattern, root_dir=folder)):
            return unread(word.text, word.line, "it stands for the files that match", False)
        return Value(text, word.line)

    def joined(self, word: Node) -> Value:
        """Expand a word without splitting and patterns, as on the right of an assignment."""
        fields = self._fields(word, False)
        values = [value for pieces in fields for value in pieces]
        text = " ".join("".join(value.text for value in pieces) for pieces in fields)
        if len(text) > MOST:
            return unread(word.text[:60], word.line, "it is too long")
        known = all(value.known for value in values)
        many = any(value.many for value in values)
        return Value(text, word.line, known, word.span, notes_of(values), many)

    def _fields(self, word: Node, splits: bool) -> list[list[Value]]:
        stream = self._stream(word.Parts, splits, False)
        return [[v for v in some if v] for there, some in groupby(stream, bool) if there]

    def _stream(self, parts: Sequence[Node], splits: bool, quoted: bool) -> Iterator[Value | None]:
        """The pieces of a word, None where a new argument begins."""
        for at, part in enumerate(parts):
            whole = quoted or not splits
            if part.Type == "Lit":
                yield from self._literal(part, splits, quoted, at == 0, part is parts[-1])
            elif part.Type == "SglQuoted" and not part.Dollar:
                text = part.text if quoted else part.Value or ""
                yield Value(text.translate(MEANT), part.line, quoted=True)
            elif part.Type == "DblQuoted":
                yield from [Value("", part.line, quoted=True)] * (not part.Parts)
                yield from self._stream(part.Parts, splits, True)
            elif isinstance(values := self._part(part, quoted), Node):  # the word of a default
                yield from [Value("", part.line, quoted=True)] * (quoted and not values.Parts)
                yield from self._stream(values.Parts, splits, quoted)
            else:
                for i, value in enumerate(values):
                    yield from [None] * (i > 0)
                    if not whole and value.text and "IFS" in {*self.variables, *self.conditional}:
                        value = unread(part.text, part.line, "IFS splits it")
                    value = replace(value, quoted=whole, listed=_lists(part))
                    yield from [value] if whole or not value.known else _split(value)

    def _literal(
        self, part: Node, splits: bool, quoted: bool, first: bool, last: bool
    ) -> Iterator[Value | None]:
        text, line = part.Value.translate(MEANT), part.line
        if quoted:
            yield Value(re.sub(r'\\([$`"\\])', r"\1", text), line, quoted=True)
            return
        if match := re.search("\1[^\2]*\2", part.Value):
            name = match[0].translate(MEANT)
            why = f"{name} is a placeholder (bash reads `<` as a redirection): put the value in its"
            self.notes.append(Note(line, "placeholder", f"{why} place"))
            yield Value(text, line, False, quoted=not splits)
            return
        assigns = not splits or (first and re.match(r"[A-Za-z_]\w*=", text))
        place = ("^|" if first else "") + ("(?<=[:=])" if assigns else "(?!)")
        tilde = re.compile(rf"(?:{place})~(?=/|:{'' if not last else '|' + chr(92) + 'Z'})")
        if tilde.search(text):
            variable = self.get("HOME")
            if variable.items and variable.text is None:
                yield unread(part.text, line, "HOME is not known", False)
                return
            text = tilde.sub(lambda _: variable.text or os.path.expanduser("~"), text)
        for match in re.finditer(r"\\(.)?|[^\\]+", text, re.DOTALL):
            if match[0][0] == "\\":
                yield Value(match[1] or "", line, quoted=True)
            else:
                value = Value(match[0], line, quoted=not splits)
                yield from _split(value) if splits else [value]

    def _part(self, part: Node, quoted: bool) -> Sequence[Value] | Node:
        """What an expansion stands for; the word of a default where that takes its place."""
        if part.Type == "ParamExp":
            return self._variable(part, quoted)
        if part.Type == "CmdSubst":
            text = self._printed(part.Stmts)
            return [_not_known(part) if text is None else Value(text, part.line)]
        if part.Type == "ArithmExp":
            self.changes(part.text, part.line)
            number = self._number(part.X)
            return [_not_known(part, False) if number is None else Value(str(number), part.line)]
        return [_not_known(part)]

    def _number(self, node: Node) -> int | None:
        """The value of an arithmetic expression of known numbers."""
        if node.Type == "ParenArithm":
            return self._number(node.X)
        if node.Type == "UnaryArithm" and node.Op in ("-", "+"):
            number = self._number(node.X)
            return None if number is None else -number if node.Op == "-" else number
        if node.Type == "BinaryArithm" and node.Op in ARITHMETIC:
            a, b = self._number(node.X), self._number(node.Y)
            if a is None or b is None or (node.Op in "/%" and not b):
                return None
            return ARITHMETIC[node.Op](a, b)
        if node.Type != "Word":
            return None
        value = self.joined(node)
        if value.known and re.fullmatch(r"[A-Za-z_]\w*", value.text):
            self.used.add(value.text)
            value = replace(value, text=self.get(value.text).text or "")
        whole = value.known and re.fullmatch("0|[1-9][0-9]{,17}", value.text)
        return int(value.text) if whole else None

    def changes(self, arithmetic: str, line: int) -> None:
        """Variables that arithmetic sets are not known."""
        for match in CHANGES.finditer(arithmetic):
            self.unknown(match[1] or match[2], line, f"`{arithmetic[:60]}` sets it")

    def unknown(self, name: str, line: int, why: str, exported: bool | None = False) -> None:
        """A variable has a value that is not known from here on."""
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            exported = any_exported(self.get(name).exported, self.exports_all, exported)
            value = unread(f"${name}", line, why, variable=name)
            self.variables[name] = Variable((value,), exported=exported, line=line)

    def lose(self, line: int, why: str) -> None:
        """Something that is not read may have set anything."""
        note = Note(line, "unread", why)
        self.notes.append(note)
        self.lost, self.arguments, self.folder = note, None, None
        for name, old in list(self.variables.items()):
            value = Value(f"${name}", line, False, None, (note,), True)
            self.variables[name] = Variable((value,), exported=old.exported or None, line=line)

    # Variables ---------------------------------------------------------------------------------

    def _variable(self, part: Node, quoted: bool) -> Sequence[Value] | Node:
        name, index, exp = part.Param.Value, _index(part), part.Exp
        self.used.add(name)
        odd = part.Excl or part.Length or part.Slice or part.Repl or part.Names or part.Width
        if odd or not re.fullmatch(r"[@*]|\d*", index) or (exp and exp.Op not in OPERATORS):
            return [_not_known(part, not part.Length)]
        if name in ("!", "?", "$", "-"):
            return [Value(part.text, part.line, False)]  # of the running shell
        items = self._items(part, index)
        every = name in ("@", "*") or index in ("@", "*")
        operator, lists = exp.Op if exp else "", _lists(part)
        if any(not item.known for item in items) and not (quoted and lists and not operator):
            notes = notes_of(items) or _not_known(part).notes
            return [Value(part.text, part.line, False, None, notes, True)]
        usable = bool(items) and ([v.text for v in items] != [""] or operator[:1] != ":")
        if operator.endswith("+"):
            if not usable and exp.Word and exp.Word.text.startswith("-"):
                why = f"{part.text} adds nothing, as {name} is not set; set it to check it, too"
                self.notes.append(Note(part.line, "needed", why))
            return (exp.Word or exp) if usable else Node({}, "", True)
        if usable or (every and not operator):
            joins = quoted and every and not lists
            if joins and (name == "IFS" or "IFS" in {*self.variables, *self.conditional}):
                return [_not_known(part, False)]
            return [Value(" ".join(v.text for v in items), part.line)] if joins else items
        return self._missing(part, operator, index)

    def _missing(self, part: Node, operator: str, index: str) -> Sequence[Value] | Node:
        """A variable that is not set, or empty behind a colon."""
        name, exp, line = part.Param.Value, part.Exp, part.line
        if operator.endswith("-"):
            return exp.Word or Node({}, "", True)
        if operator.endswith("="):
            value = self.joined(exp.Word) if exp.Word else Value("", line)
            exported = any_exported(self.get(name).exported, self.exports_all)
            self.variables[name] = Variable((value,), False, exported, line)
            return [value]
        if operator.endswith("?"):
            message = re.sub("[\"']", "", exp.Word.text) if exp.Word else ""
            note = Note(line, "needed", f"${name} is not set{': ' * bool(message)}{message}", name)
            self.notes.append(note)
            value = Value(part.text, line, False, None, (note,))
            self.variables[name] = replace(self.get(name), items=(value,), line=line)
            return [value]
        if index not in ("", "0"):
            return []
        if name.isdigit():
            note = Note(line, "needed", f"${name}, an argument, is not given", name)
            return [Value(part.text, line, False, None, (note,))]
        needed = MACHINE_VARIABLES.fullmatch(name) or name in self.tested
        note = Note(line, "needed" if needed else "unset", f"${name} is not set", name)
        return [Value(part.text, line, False, None, (note,), True, True)]

    def _items(self, part: Node, index: str) -> tuple[Value, ...]:
        """The values of a name and its index; none if it is not set."""
        name, line, arguments = part.Param.Value, part.line, self.arguments
        if name == "PWD":
            return (Value(self.folder, line) if self.folder else _not_known(part),)
        if name == "BASH_SOURCE" and part.inner:
            return (_not_known(part),)
        if name == "0" or (name == "BASH_SOURCE" and index in ("", "0")):
            return (Value(self.script, line),) if self.script else (_not_known(part),)
        if name.isdigit() or name in "@*#":
            if arguments is None or (name == "#" and not all(a.known for a in arguments)):
                return (unread(part.text, line, f"the arguments are not known; {BY_RUN}"),)
            if name == "#":
                return (Value(str(len(arguments)), line),)
            return arguments if name in "@*" else arguments[int(name) - 1 : int(name)]
        items = self.get(name).items
        if index in ("@", "*") or not all(item.known for item in items):
            return items
        at = int(index or 0)
        return items[at : at + 1]

    # Programs ----------------------------------------------------------------------------------

    def _printed(self, statements: Sequence[Node]) -> str | None:
        """What a command substitution prints, where that is known without running it."""
        if len(statements) != 1:
            return None if statements else ""  # `# a remark between two lines` \
        command, folder = statements[0].Cmd, self.folder
        if command and command.Op == "&&":
            moves, shows = self._argv(command.X), self._argv(command.Y)
            if len(moves) != 2 or moves[0] != "cd" or folder is None:
                return None
            folder = os.path.normpath(os.path.join(folder, moves[1]))
            return folder if os.path.isdir(folder) and shows[:1] == ["pwd"] else None
        match self._argv(statements[0]):
            case ["vlrft", "plugin"]:
                return str(shipped_file("plugins", "vlrft.py"))
            case ["nproc"] if "OMP_NUM_THREADS" not in {*self.variables, *self.conditional}:
                return str(len(os.sched_getaffinity(0)))
            case ["pwd"]:
                return folder
            case ["dirname", path]:
                return os.path.dirname(path.rstrip("/")) or ("/" if path[:1] == "/" else ".")
            case ["basename", path, *suffix] if len(suffix) < 2:
                return os.path.basename(path.rstrip("/")).removesuffix(*suffix or [""])
            case ["expr", *words]:
                return expression(words)
            case ["seq", *words]:
                return sequence(words)
        return None

    def _argv(self, statement: Node) -> list[str]:
        """A plain command's words; none if one of them is not known."""
        command = statement.Cmd
        if not command or command.Type != "CallExpr" or command.Assigns:
            return []
        values = [value for word in command.Args for value in self.expand(word)]
        return [value.text for value in values] if all(value.known for value in values) else []


def _split(value: Value) -> list[Value | None]:
    """Each word of a text that stands without quotes."""
    text, words = value.text, re.findall(r"[^ \t\n]+", value.text)
    if words == [text]:
        return [value]
    stream: list[Value | None] = [None] * text.startswith((" ", "\t", "\n"))
    for word in words:
        stream += [replace(value, text=word, span=None), None]
    return stream if text.endswith((" ", "\t", "\n")) else stream[:-1]


def _lists(part: Node) -> bool:
    """Whether an expansion may be several words in quotes, too."""
    return part.Type == "ParamExp" and (part.Param.Value == "@" or _index(part) == "@")


def _index(part: Node) -> str:
    """The index of ``${NAME[INDEX]}``, or nothing."""
    return part.Index.text if part.Index else ""


def _not_known(part: Node, many: bool = True) -> Value:
    return unread(part.text[:200], part.line, "its value is known only to bash", many)
