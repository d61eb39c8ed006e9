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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from swift_vlrft.recipe.shell.words import NAME, Chain, Node, Note, Part, Simple, Word

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
BLANKS = (" ", "\t", "\n")


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of an argument; ``listed``: an item of "$@" or "${ARRAY[@]}"."""

    value: Value
    quoted: bool
    listed: bool = False


class Expander(ABC):
    """Expands words at one point of a script; ``tested``: variables that a condition tests, so
    that it is no fault where they are not set; ``used``: those whose value was taken.
    """

    state: State
    script: str | None
    substitutions: Mapping[str, Callable[[], str]]
    used: set[str]
    tested: set[str]
    references: set[str]
    inside: int
    globs: bool = True

    @abstractmethod
    def note(self, note: Note) -> None: ...

    @abstractmethod
    def run_alone(self, nodes: Iterable[Node]) -> None: ...

    @abstractmethod
    def lose(self, note: Note) -> None: ...

    @abstractmethod
    def run_text(self, text: str, line: int) -> None: ...

    def expand(self, word: Word) -> list[Value]:
        """A word as the arguments that it becomes: none, one, or several."""
        if braced(word):
            why = f"{word.text} was not read: its braces stand for several words"
            flags = None if re.search("[{,]-", word.text) else NOTHING
            return [replace(unread(word.text, word.line, why, flags), span=word.span)]
        fields = self._fields(word.parts, word.line, True)
        if any(not f.value.known and not f.quoted for one in fields for f in one):
            fields = [[fragment for one in fields for fragment in one]]
        found = [self._finished(one, word) for one in fields]
        given = fields and _listed(fields[0]) and found[0].known  # as it was written elsewhere
        if len(found) == 1 and found[0].span is None and not given:
            return [replace(found[0], span=word.span)]
        return found

    def _finished(self, one: list[Fragment], word: Word) -> Value:
        if _listed(one):
            return one[0].value
        values = [fragment.value for fragment in one]
        text = "".join(value.text for value in values)
        if not all(value.known for value in values):
            alone = len(one) == 1 and not one[0].quoted
            may = union(f.value.may for f in one if alone or f.listed)
            gone = alone and values[0].vanishes
            return Value(text, word.line, False, None, may, notes_of(values), gone)
        bare = "".join(fragment.value.text for fragment in one if not fragment.quoted)
        pattern = "".join(glob.escape(f.value.text) if f.quoted else f.value.text for f in one)
        if re.search(r"[*?]|\[.+\]", bare) and self._matches(pattern):
            why = f"{word.text} was not read: it stands for the files that match"
            return unread(word.text, word.line, why, NOTHING)
        return Value(text, word.line)

    def _matches(self, pattern: str) -> bool:
        """Whether files may match a pattern; if none does, it is kept as text."""
        try:
            folder = self.state.folder
            known = self.globs and (os.path.isabs(pattern) or folder is not None)
            return not known or bool(glob.glob(pattern.replace("[^", "[!"), root_dir=folder))
        except (OSError, ValueError, re.error):
            return True

    def joined(self, word: Word, parts: Sequence[Part] | None = None) -> Value:
        """A word without splitting and globs, as on the right of an assignment."""
        fields = self._fields(word.parts if parts is None else parts, word.line, False)
        values = [fragment.value for one in fields for fragment in one]
        known = all(value.known for value in values)
        text = " ".join("".join(f.value.text for f in one) for one in fields)
        may = NOTHING if known else flags_of(values)
        return Value(text, word.line, known, word.span, may, notes_of(values))

    def _fields(self, parts: Sequence[Part], line: int, splits: bool) -> list[list[Fragment]]:
        stream: list[Fragment | None] = []  # None: a new argument begins
        waiting, odd = [*reversed(parts)], "IFS" in self.state.variables
        while waiting:
            part = waiting.pop()
            values = self._part(part, line)
            if not isinstance(values, list):  # the word of a default, in place of the variable
                waiting += reversed(values or [Part("text", "", True)][: part.quoted])
                continue
            quoted = part.quoted or not splits
            for i, value in enumerate(values):
                stream += [None] * (i > 0)
                if odd and part.kind != "text" and not quoted and value.text:
                    why = f"{_source(part)} was not read: IFS splits it"
                    value = unread(_source(part), line, why)
                fragment = Fragment(value, quoted, part.lists)
                stream += [fragment] if quoted or not value.known else _split(fragment)
        return [[f for f in one if f] for some, one in groupby(stream, bool) if some]

    def _part(self, part: Part, line: int) -> list[Value] | tuple[Part, ...]:
        """What a part stands for; parts where that is the word of a default."""
        if part.kind == "text":
            return [Value(part.text, line)]
        if part.kind == "variable":
            return self._variable(part, line)
        self.run_alone(part.nodes)
        if part.kind == "run":
            text = self._printed(part)
            return [_not_known(part, line)] if text is None else [Value(text, line)]
        if (total := self._sum(part.text)) is not None:
            return [Value(total, line)]
        self.changes(part.text, line)
        if part.text.startswith("<") and not part.nodes:
            return [Value(part.text, line, False)]  # a placeholder, which the parser has named
        return [_not_known(part, line, NOTHING)]

    def changes(self, arithmetic: str, line: int) -> None:
        """Variables that an arithmetic expression sets have a value that was not read."""
        for match in CHANGES.finditer(arithmetic):
            self.unknown(match[1] or match[2], line, arithmetic, NOTHING)

    def unknown(self, name: str, line: int, by: str, may: May = None) -> None:
        if NAME.fullmatch(name):
            self.used.discard(name)
            value = unread(f"${name}", line, f"${name} was not read: `{by}` sets it", may)
            self.state.set(name, Variable((value,)))

    def _variable(self, part: Part, line: int) -> list[Value] | tuple[Part, ...]:
        name, operator = part.name, part.operator
        self.used.add(name)
        if operator == "odd" or not name:
            return [_not_known(part, line)]
        if name in ("!", "?", "$", "-"):
            return [Value(_source(part), line, False)]  # of the running shell
        items = self._items(part, line)
        every = name in ("@", "*") or part.index in ("[@]", "[*]")
        if operator == "#":
            if not items or not all(v.known for v in items):
                return [_not_known(part, line, NOTHING)]
            return [Value(str(len(items) if every else len(items[0].text)), line)]
        if any(not v.known for v in items) and not (part.quoted and part.lists and not operator):
            may = flags_of(items)
            if operator:  # the default may stand there, or what is said in place of it
                texts = all(p.kind == "text" for p in part.word)
                may = union([may, flags_of(_words(part.word)) if texts else None])
            notes = notes_of(items) or _not_known(part, line).notes
            return [Value(_source(part), line, False, None, may, notes)]
        usable = bool(items) and ([v.text for v in items] != [""] or operator[:1] != ":")
        if operator.endswith("+"):
            return part.word if usable else ()
        if usable or (every and not operator):
            joins = part.quoted and every and not part.lists
            return [Value(" ".join(v.text for v in items), line)] if joins else [*items]
        return self._missing(part, line)

    def _missing(self, part: Part, line: int) -> list[Value] | tuple[Part, ...]:
        """A variable that is not set, or empty behind a colon."""
        name, operator, source = part.name, part.operator, _source(part)
        if operator.endswith("-"):
            return part.word
        if operator.endswith("="):
            value = self.joined(Word(line), part.word)
            self.state.set(name, Variable((value,)))
            return [replace(value, text=value.text if value.known else source)]
        if operator.endswith("?"):
            message = "".join(one.text for one in part.word)
            why = f"${name} is not set{': ' * bool(message)}{message}"
            value = unread(source, line, why, NOTHING, "needed")
            self.note(value.notes[0])
            self.state.set(name, Variable((value,)))
            return [value]
        if part.index and part.index != "[0]":
            return []
        if name.isdigit():  # nothing in a function; the script itself was given none
            why = f"${name}, an argument, is not given"
            return [] if self.inside else [unread(source, line, why, NOTHING, "needed")]
        kind = "needed" if OF_THE_MACHINE.fullmatch(name) or name in self.tested else "unset"
        return [unread(source, line, f"${name} is not set", NOTHING, kind, True)]

    def _items(self, part: Part, line: int) -> tuple[Value, ...]:
        """The values of a name and its index; none if it is not set."""
        name, index, arguments = part.name, part.index, self.state.arguments
        if name == "PWD" and self.state.folder is not None:
            return (Value(self.state.folder, line),)
        if name == "0" or (name == "BASH_SOURCE" and index in ("", "[0]")):
            return (Value(self.script, line),) if self.script else (_not_known(part, line),)
        if name.isdigit() or name in "@*#":
            if arguments is None or (name == "#" and not all(a.known for a in arguments)):
                why = f"{_source(part)} was not read: the arguments are not known"
                return (unread(_source(part), line, why),)
            if name == "#":
                return (Value(str(len(arguments)), line),)
            return arguments if name in "@*" else arguments[int(name) - 1 : int(name)]
        variable = self.state.get(name)
        if index in ("[@]", "[*]") or not variable.known:
            return variable.items
        at = int(index.strip("[]") or 0)
        return variable.items[at : at + 1]

    def _printed(self, part: Part) -> str | None:
        """What a command substitution prints, where that is known without running it."""
        known = self.substitutions.get(" ".join(part.text.split()))
        if known is not None:
            return known()
        if not part.nodes:
            return ""  # `# a remark between two lines` \
        if len(part.nodes) > 1:
            return None
        node, folder = part.nodes[0], self.state.folder
        if isinstance(node, Chain) and [op for op, _ in node.rest] == ["&&"]:
            moves = self._argv(node.first)
            if len(moves) != 2 or moves[0] != "cd" or folder is None:
                return None
            node, folder = node.rest[0][1], os.path.normpath(os.path.join(folder, moves[1]))
            folder = folder if os.path.isdir(folder) else None
            return folder if self._argv(node) in (["pwd"], ["pwd", "-P"]) else None
        match self._argv(node):
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

    def _argv(self, node: Node) -> list[str]:
        """A plain command's words; none if one of them is not known."""
        if not isinstance(node, Simple) or node.assigned or node.fed is not None:
            return []
        values = [value for word in node.words for value in self.expand(word)]
        return [value.text for value in values] if all(value.known for value in values) else []

    def _sum(self, text: str) -> str | None:
        """The value of ``$((NAME + 1))`` and ``$((NAME - 1))``; None for other arithmetic."""
        match = SUM.fullmatch(text)
        value = self.state.get(match[1]).text if match else None
        if match is None or not re.fullmatch(r"[1-9]\d{0,8}", value or ""):
            return None
        self.used.add(match[1])
        return str(int(value or 0) + int(match[2] + match[3]))


def _split(fragment: Fragment) -> list[Fragment | None]:
    """Each word of a text that stands without quotes."""
    text = fragment.value.text
    words = text.split()
    if words == [text]:
        return [fragment]
    stream: list[Fragment | None] = [None] * text.startswith(BLANKS)
    for word in words:
        value = replace(fragment.value, text=word, span=None)
        stream += [replace(fragment, value=value), None]
    return stream if text.endswith(BLANKS) else stream[:-1]


def _listed(one: Sequence[Fragment]) -> bool:
    """Whether an argument is an item, as it was written where the list was."""
    return len(one) == 1 and one[0].listed


def _words(parts: Iterable[Part]) -> list[Value]:
    return [Value("".join(part.text for part in parts), 0)]


def _not_known(part: Part, line: int, may: May = None) -> Value:
    source = _source(part)
    return unread(source, line, f"{source} was not read: its value is known only to bash", may)


def _source(part: Part) -> str:
    if part.kind == "variable":
        bare = NAME.fullmatch(part.text) or len(part.text) == 1
        return f"${part.text}" if bare else "${" + part.text + "}"
    return f"$({part.text})" if part.kind == "run" else part.text


def braced(word: Word) -> bool:
    """Whether a word may be several by its braces: ``data/{a,b}.jsonl``, ``{1..3}``."""
    bare = "".join(p.text for p in word.parts if p.kind == "text" and not p.quoted)
    return re.search(r"\{.*(,|\.\.).*\}", bare) is not None
