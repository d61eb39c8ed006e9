"""What the words of a command become: braces, ~, variables, splitting and globs, as in bash.

data/{a,b}.jsonl    two words          "$MODEL"     one           ${SYS:-"two words"}    one
./data/*.jsonl      the files there    $FLAGS       its words     "${ARGS[@]}"           the items

A word with a part that only bash knows is one ``Value`` that is not known, with the reason.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from swift_vlrft.recipe.shell.braces import braced, cells_of, parts_of
from swift_vlrft.recipe.shell.grammar import Chain, Node, Parser, Simple
from swift_vlrft.recipe.shell.reader import Reader
from swift_vlrft.recipe.shell.state import NOTHING, May, Value, Variable, flags_in, union
from swift_vlrft.recipe.shell.words import Note, Part, Word

NAME = re.compile(r"[A-Za-z_]\w*")
PARAMETER = re.compile(r"([A-Za-z_]\w*|\d+)(\[[@*]\]|\[\d+\])?(?:(:?[-=?+])(.*))?", re.DOTALL)
SUM = re.compile(r"\$\(\(\s*\$?\{?([A-Za-z_]\w*)\}?\s*([-+])\s*(\d{1,9})\s*\)\)")
CHANGES = re.compile(
    r"([A-Za-z_]\w*)(?:\[[^]]*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    r"|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
OF_THE_MACHINE = re.compile(
    r"USER|LOGNAME|HOME|TMPDIR|LANG|(?:LOCAL_|NODE_)?RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT)"
    r"|CUDA_HOME|CONDA_PREFIX|(?:SLURM|PBS|LSB|OMPI|PMI|MLP|VC)_\w+"
)
"""What a login or a scheduler sets, where the script runs."""
LONGEST_SEQUENCE = 1000
BLANKS = (" ", "\t", "\n")
WHY = "its value is known only to bash"


@dataclass(slots=True)
class Found:
    """What one part stands for; ``texts`` None: not known."""

    texts: list[str] | None
    notes: tuple[Note, ...] = ()
    may: May = NOTHING
    vanishes: bool = False


@dataclass(slots=True)
class Field:
    """A word in the making, and the pattern that it is for globs."""

    text: str = ""
    pattern: str = ""
    globs: bool = False

    def put(self, text: str, quoted: bool) -> None:
        self.text += text
        self.pattern += glob.escape(text) if quoted else text
        self.globs |= not quoted and any(character in text for character in "*?[")


@dataclass(slots=True)
class Fields:
    done: list[Field] = field(default_factory=list)
    current: Field | None = None

    def end(self) -> None:
        if self.current is not None:
            self.done.append(self.current)
        self.current = None

    def put(self, text: str, quoted: bool) -> None:
        self.current = self.current or Field()
        self.current.put(text, quoted)

    def split(self, text: str) -> None:
        if text.startswith(BLANKS):
            self.end()
        for i, piece in enumerate(text.split()):
            if i:
                self.end()
            self.put(piece, False)
        if text.endswith(BLANKS):
            self.end()


def expand(shell: Reader, word: Word) -> list[Value]:
    """A word as the arguments that it becomes: none, one, or several."""
    choices = choices_of(word)
    several = [replace(word, parts=_home(parts)) for parts in choices]
    return [value for one in several for value in _expanded(shell, one, len(choices) == 1)]


def choices_of(word: Word) -> list[list[Part]]:
    """The words that its braces make of a word."""
    if not any("{" in p.text for p in word.parts if p.kind == "text" and not p.quoted):
        return [word.parts]
    return [parts_of(cells) for cells in braced(cells_of(word.parts))]


def joined(shell: Reader, word: Word) -> Value:
    """A word without splitting and globs, as on the right of an assignment."""
    parts = [replace(part, quoted=True) for part in _homes(word.parts)]
    values = _expanded(shell, replace(word, parts=parts or [Part("text", "", True)]), True)
    known = all(value.known for value in values)
    return Value(
        " ".join(value.text for value in values) if known else word.text,
        word.line,
        known,
        word.span,
        NOTHING if known else union(_held(shell, part) for part in word.parts),
        tuple(note for value in values for note in value.notes),
    )


def _held(shell: Reader, part: Part) -> May:
    """The flags that a part of a value may hold."""
    if part.kind == "text":
        return flags_in(part.text.split())
    if part.kind == "variable" and NAME.fullmatch(part.text):
        variable = shell.state.get(part.text)
        return variable.flags() if variable else NOTHING
    return NOTHING if part.kind == "odd" else None


def _expanded(shell: Reader, word: Word, single: bool) -> list[Value]:
    """``single``: the word's place is that of its one value."""
    if (items := _items(shell, word)) is not None:
        return items
    fields, found = Fields(), list[Found]()
    unread = False
    # "$@" of nothing is no argument at all, while "" is an empty one.
    vanishes = any(part.kind == "variable" and _is_list(part.text) for part in word.parts)
    waiting = [(part, part.kind != "text" and not part.quoted) for part in word.parts]
    while waiting:
        part, splits = waiting.pop(0)
        if part.kind == "text":
            if part.text or not (part.quoted and vanishes):
                fields.split(part.text) if splits else fields.put(part.text, part.quoted)
            continue
        one = _part(shell, part, word.line)
        if isinstance(one, list):  # the word of a default, in place of the variable
            waiting[:0] = [(inner, not inner.quoted) for inner in one]
            continue
        found.append(one)
        unread |= one.texts is None or (
            splits and any(one.texts) and "IFS" in shell.state.variables
        )
        for i, text in enumerate(one.texts or ()):
            if i:
                fields.end()
            fields.split(text) if splits else fields.put(text, True)
    fields.end()
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    if unread:
        return [_unknown(word, found, notes)]
    values = []
    for one_field in fields.done:
        texts = _globbed(shell, one_field)
        if texts is None:
            why = f"{word.text} was not read: the folder it is looked up in is not known"
            notes = (Note(word.line, "unread", why),)
            values.append(Value(word.text, word.line, False, word.span, NOTHING, notes))
            continue
        one_value = single and len(fields.done) == len(texts) == 1
        span = word.span if one_value else None
        values += [Value(text, word.line, True, span) for text in texts]
    return values


def _unknown(word: Word, found: Sequence[Found], notes: tuple[Note, ...]) -> Value:
    parts = [part for part in word.parts if part.text or part.kind != "text"]
    alone = len(parts) == 1
    bare = alone and not word.parts[0].quoted
    source = "".join(_source(part) for part in parts)
    may = (
        union(one.may for one in found) if bare or any(_is_list(p.text) for p in parts) else NOTHING
    )
    gone = bare and any(one.vanishes for one in found)
    return Value(source, word.line, False, word.span, may, notes, gone)


def _items(shell: Reader, word: Word) -> list[Value] | None:
    """What was written into ARRAY, for a word that is nothing but "${ARRAY[@]}" or "$@"."""
    parts = [part for part in word.parts if part.text or part.kind != "text"]
    if len(parts) != 1 or parts[0].kind != "variable":
        return None
    if not re.fullmatch(r"@|[A-Za-z_]\w*\[@\]", parts[0].text):
        return None
    if parts[0].text == "@":
        items = shell.state.arguments
    else:
        variable = shell.state.get(parts[0].text[:-3])
        shell.used.add(parts[0].text[:-3])
        items = variable.value if variable and isinstance(variable.value, tuple) else None
    if items is None:
        return None
    if not parts[0].quoted and any(
        not v.known or any(c in v.text for c in "*?[ \t\n") or not v.text for v in items
    ):
        return None
    return list(items)


def _globbed(shell: Reader, one: Field) -> list[str] | None:
    """The files that a pattern names, or the pattern itself; None where that is not known."""
    if not one.globs or not one.pattern.strip("*?[]"):
        return [one.text]
    pattern = re.sub(r"\[\^", "[!", one.pattern)
    if not shell.state.globs:
        return None
    if not os.path.isabs(one.text) and shell.state.folder is None:
        return None
    try:
        names = glob.glob(pattern, root_dir=shell.state.folder)
    except (OSError, ValueError, re.error):
        return None
    return sorted(names) or [one.text]


def _part(shell: Reader, part: Part, line: int) -> Found | list[Part]:
    if part.kind == "variable":
        return _variable(shell, part, line)
    if part.kind == "run":
        shell.run_alone(part.nodes)
        if (text := _printed(shell, part)) is not None:
            return Found([text])
        return _unread(line, f"$({part.text})", None)
    if part.text.startswith("<") and not part.nodes:
        return Found(None)  # a placeholder, which the lexer has named
    if part.nodes:
        shell.run_alone(part.nodes)
    elif (total := _sum(shell, part.text)) is not None:
        return Found([str(total)])
    changes(shell, part.text, line)
    return _unread(line, part.text, NOTHING)


def changes(shell: Reader, arithmetic: str, line: int) -> None:
    """Variables that an arithmetic expression sets have a value that was not read."""
    for match in CHANGES.finditer(arithmetic):
        name = match[1] or match[2]
        notes = (Note(line, "unread", f"${name} was not read: (({arithmetic})) sets it"),)
        shell.state.set(name, Variable(None, notes=notes))


def _unread(line: int, text: str, may: May, why: str = WHY) -> Found:
    return Found(None, (Note(line, "unread", f"{text} was not read: {why}"),), may)


def _variable(shell: Reader, part: Part, line: int) -> Found | list[Part]:
    """What ``${part.text}`` stands for; parts where that is the word of its default."""
    inside = part.text
    if inside in ("@", "*", "#"):
        return _arguments(shell, inside, part.quoted, line)
    if inside in ("!", "?", "$", "-", "_"):
        return Found(None, may=NOTHING)  # of the running shell
    if inside.startswith("#"):
        return _length(shell, inside[1:], line)
    match = PARAMETER.fullmatch(inside)
    if match is None:
        shell.used.update(NAME.findall(inside)[:1])
        return _unread(line, "${" + inside + "}", None)
    name, index, operator, word = match[1], match[2] or "", match[3] or "", match[4] or ""
    shell.used.add(name)
    variable = _lookup(shell, name, index, line)
    if variable is not None and variable.value is None:
        notes = variable.notes or _unread(line, f"${name}", None).notes
        return Found(None, notes, variable.may)
    items = variable.value if variable and isinstance(variable.value, tuple) else ()
    if variable is not None and not all(item.known for item in items):
        return Found(None, tuple(n for item in items for n in item.notes), variable.flags())
    texts = _plain(variable, index)
    usable = variable is not None and (texts not in ([], [""]) or not operator.startswith(":"))
    if operator.endswith("+"):
        return _default(word if usable else "", part.quoted, line)
    if usable:
        return Found([" ".join(texts)] if part.quoted and index == "[*]" else texts)
    if operator.endswith("-"):
        return _default(word, part.quoted, line)
    if operator.endswith("="):
        value = joined(shell, Word(line, _default(word, part.quoted, line), text=word))
        shell.state.set(name, Variable(value.text if value.known else None, notes=value.notes))
        return Found([value.text] if value.known else None, value.notes, value.may)
    if operator.endswith("?"):
        said = f"${name} is not set{': ' if word else ''}{word}"
        note = Note(line, "needed", said)
        shell.note(note)
        shell.state.set(name, Variable(None, notes=(note,)))
        return Found(None, (note,))
    if index:
        return Found([])
    return _not_set(shell, name, line)


def _lookup(shell: Reader, name: str, index: str, line: int) -> Variable | None:
    arguments = shell.state.arguments
    if name == "PWD" and shell.state.folder is not None:
        return Variable(shell.state.folder)
    if name == "0" or (name == "BASH_SOURCE" and index in ("", "[0]")):
        return Variable(shell.script)
    if not name.isdigit():
        return shell.state.get(name)
    if arguments is None:
        why = Note(line, "unread", f"${name} was not read: the arguments are not known")
        return Variable(None, notes=(why,), may=None)
    at = int(name)
    if not 0 < at <= len(arguments):
        return None
    one = arguments[at - 1]
    return Variable(one.text if one.known else None, notes=one.notes, may=one.may)


def _not_set(shell: Reader, name: str, line: int) -> Found:
    if name.isdigit():  # nothing in a function; the script itself was given none
        note = Note(line, "needed", f"${name}, an argument, is not given")
        return Found([]) if shell.inside else Found(None, (note,))
    kind = "needed" if OF_THE_MACHINE.fullmatch(name) or name in shell.asked else "unset"
    return Found(None, (Note(line, kind, f"${name} is not set"),), vanishes=True)


def _arguments(shell: Reader, inside: str, quoted: bool, line: int) -> Found:
    arguments = shell.state.arguments
    if arguments is None or not all(one.known for one in arguments):
        return _unread(line, f"${inside}", None, "the arguments are not known")
    if inside == "#":
        return Found([str(len(arguments))])
    texts = [one.text for one in arguments]
    return Found([" ".join(texts)] if inside == "*" and quoted else texts)


def _length(shell: Reader, name: str, line: int) -> Found:
    """``${#ARRAY[@]}`` and ``${#NAME}``."""
    variable = shell.state.get(name.removesuffix("[@]").removesuffix("[*]"))
    shell.used.update(NAME.findall(name)[:1])
    value = variable.value if variable else None
    if isinstance(value, tuple) and name.endswith("]") and all(v.known for v in value):
        return Found([str(len(value))])
    if isinstance(value, str) and NAME.fullmatch(name):
        return Found([str(len(value))])
    return _unread(line, "${#" + name + "}", NOTHING)


def _printed(shell: Reader, part: Part) -> str | None:
    """What a command substitution prints, where that is known without running it."""
    known = shell.substitutions.get(" ".join(part.text.split()))
    if known is not None:
        return known()
    if not part.nodes:
        return ""  # `# a remark between two lines` \
    if len(part.nodes) != 1:
        return None
    (node,) = part.nodes
    if isinstance(node, Chain) and not (node.negated or node.background):
        moves, folder = _argv(shell, node.first), None
        if moves and moves[0] == "cd" and len(moves) == 2 and shell.state.folder is not None:
            folder = os.path.normpath(os.path.join(shell.state.folder, moves[1]))
        asks = [
            op == "&&" and _argv(shell, then) in (["pwd"], ["pwd", "-P"]) for op, then in node.rest
        ]
        return folder if asks == [True] and folder and os.path.isdir(folder) else None
    words = _argv(shell, node) or [""]
    if words == ["pwd"]:
        return shell.state.folder
    if words[0] == "dirname" and len(words) == 2:
        return os.path.dirname(words[1].rstrip("/")) or ("/" if words[1][:1] == "/" else ".")
    if words[0] == "basename" and len(words) == 2:
        return os.path.basename(words[1].rstrip("/"))
    if words[:2] == ["seq", "-s,"] and len(words) == 4:
        return _sequence(words[2], words[3])
    return None


def _argv(shell: Reader, node: Node) -> list[str] | None:
    if not isinstance(node, Simple) or node.assigned or node.fed is not None:
        return None
    values = [value for word in node.words for value in expand(shell, word)]
    return [value.text for value in values] if all(value.known for value in values) else None


def _sum(shell: Reader, text: str) -> int | None:
    """The value of ``$((NAME + 1))`` and ``$((NAME - 1))``; None for other arithmetic."""
    match = SUM.fullmatch(text)
    variable = shell.state.get(match[1]) if match else None
    value = variable.value if variable else None
    if match is None or not isinstance(value, str) or not re.fullmatch(r"[1-9]\d{0,8}", value):
        return None
    shell.used.add(match[1])
    return int(value) + int(match[2] + match[3])


def _sequence(first: str, last: str) -> str | None:
    """What ``seq -s, FIRST LAST`` prints."""
    if not (re.fullmatch(r"\d{1,9}", first) and re.fullmatch(r"\d{1,9}", last)):
        return None
    if int(last) - int(first) >= LONGEST_SEQUENCE:
        return None
    return ",".join(map(str, range(int(first), int(last) + 1)))


def _plain(variable: Variable | None, index: str) -> list[str]:
    value = variable.value if variable else None
    if isinstance(value, tuple):
        texts = [one.text for one in value]
        if index in ("[@]", "[*]"):
            return texts
        at = int(index.strip("[]") or 0)
        return texts[at : at + 1]
    return [] if value is None or index not in ("", "[0]", "[@]", "[*]") else [value]


def _default(text: str, quoted: bool, line: int) -> list[Part]:
    """The parts of the word behind ``:-``."""
    if quoted:
        text = '"' + re.sub(r'(?<!\\)"', "", text) + '"'
    parts = Parser(text, line).everything().parts
    return parts or [Part("text", "", quoted)][: int(quoted)]


def _is_list(variable: str) -> bool:
    """Whether it may be several words in quotes, too."""
    return variable.startswith("@") or "[@]" in variable


def _source(part: Part) -> str:
    if part.kind == "variable":
        return f"${part.text}" if NAME.fullmatch(part.text) else "${" + part.text + "}"
    return f"$({part.text})" if part.kind == "run" else part.text


def _home(parts: list[Part]) -> list[Part]:
    """``~`` at the beginning of a word as the variable that it stands for."""
    if not parts or parts[0].kind != "text" or parts[0].quoted or parts[0].text[:1] != "~":
        return parts
    user, slash, rest = parts[0].text[1:].partition("/")
    if user:
        home = os.path.expanduser(f"~{user}")
        return [Part("text", home, home[:1] != "~"), Part("text", slash + rest, False), *parts[1:]]
    if not slash and len(parts) > 1:
        return parts  # ~"x"
    return [Part("variable", "HOME", True), Part("text", slash + rest, False), *parts[1:]]


def _homes(parts: Sequence[Part]) -> list[Part]:
    """``~`` at the beginning of a value and behind its colons."""
    found: list[Part] = []
    for i, part in enumerate(parts):
        if part.kind != "text" or part.quoted or "~" not in part.text:
            found.append(part)
            continue
        for j, piece in enumerate(part.text.split(":")):
            text = Part("text", piece, False)
            found += [Part("text", ":", False)] if j else []
            found += _home([text]) if i == 0 or j else [text]
    return found
