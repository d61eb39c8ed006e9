"""Read a script once, straight from top to bottom, without running anything.

export MAX_PIXELS=${MAX_PIXELS:-401408}
NPROC_PER_NODE=4 nohup \
swift rlhf --model "$MODEL" "$@"        -> Command(words swift, rlhf, --model, ...; line 2)

Anything else (branches, loops, functions, arrays, `source`, `eval`, `set -a`) is not read: a note
names the line, and every name in it is not known from there on. bash reads it under `--run`
(by_bash.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from swift_vlrft.recipe.lines import GAP, almost, commands_of, end_of, is_read, wrong_lines
from swift_vlrft.recipe.tree import Mistake, Node, Note, Patch, note_at, parse
from swift_vlrft.recipe.words import BY_RUN, NAME, Value, Variable, Words, joined
from swift_vlrft.recipe.wrappers import ENVIRONMENT, MAKERS, WITHIN, not_read, unwrapped

BUILTINS = "read|getopts|mapfile|readarray|unset|declare|typeset|local|readonly|export|let"
UNREAD = re.compile(f"{BUILTINS}|pushd|popd|set|shift|source|\\.|eval|cd|alias")
"""Commands after which something is not known."""
SOURCES = re.compile(r"(?m)\b(?:source|eval)\b|(?:^|[\s;&|(])\.\s")
"""What reads other commands; `--run` does not follow them."""
ANY = re.compile(
    rf"\b(?:{BUILTINS}|printf\s+-v|wait\s+-p)\b(?:\s+-\S+|\s+\w+=\S*)*\s+[\"']?[$`]|\s-\w*n\w*\s+\w+="
)
"""Text that may set a variable which it does not name: ``export "$NAME"``, ``declare -n A=B``."""
OF_BASH = re.compile(r"IFS|PATH|PS\d|(?:OPT|HIST|BASH|LC_)\w+|LANG|SHELLOPTS|TIMEFORMAT")
"""Variables that bash reads itself."""
OUTPUT = re.compile(r"--(?:output|result|save)[\w-]*")
"""Flags of `swift` for what it writes."""
ANYTHING = "*"
"""For any path."""


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
    made: frozenset[str] = frozenset()
    """Paths that the script makes before; ANYTHING where another program runs."""
    text: str = ""
    """The decoded file; spans count its characters."""


class Script(Words):
    """``commands`` are the `swift` commands of a script."""

    def __init__(self, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
        super().__init__(environment, arguments)
        self.commands: list[Command] = []
        self._made = set[str]()
        self._functions = dict[str, str]()
        self._ended = False

    def read(self, text: str) -> None:
        """Read a script; its notes are then in the order of its lines. Mistake if bash refuses it
        or if it is nested too deeply.
        """
        try:
            statements, notes = parse(text)
            self._run(statements)
            self.notes += [*notes, *wrong_lines(text, statements)]
            self.notes += not_exported(text, statements, self.commands)
        except RecursionError:
            raise Mistake(1, 1, "commands are nested too deeply") from None
        self.notes = sorted(dict.fromkeys(self.notes), key=lambda note: note.line)

    def _run(self, statements: Iterable[Node]) -> None:
        for node in statements:
            if self._ended:
                return
            with self._alone() if node.Background else nullcontext():
                self._statement(node, node.Cmd or node)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A subshell: nothing that is set there comes back."""
        saved = dict(self.variables), self.arguments, self.folder, self.lost
        ended = self._ended
        yield
        self.variables, self.arguments, self.folder, self.lost = saved
        self._ended = ended

    def _statement(self, node: Node, command: Node) -> None:
        for target in (r.Word for r in node.Redirs if ">" in r.Op and r.Word):
            self._made.update(value.text for value in self.expand(target))
        match command.Type:
            case "CallExpr":
                self._simple(command, node.Redirs)
            case "DeclClause" if command.Variant.Value == "export" and all(
                map(_plain, command.Args)
            ):
                # bash expands all words before it assigns the first.
                self._assign([self._assigned(w) for w in command.Args if not w.Naked], True)
                for name in (word.Name.Value for word in command.Args if word.Naked):
                    self.variables[name] = replace(self.get(name), exported=True)
            case "BinaryCmd" if command.Op in ("&&", "||"):
                self._run([command.X])
                behind = command.Y.Cmd or command.Y
                first = _first_word(behind)
                piped = behind.Op in ("|", "|&") or behind.Type == "Subshell"
                if piped or (
                    first and not re.fullmatch(f"{UNREAD.pattern}|exec|exit|return", first)
                ):
                    self._run([command.Y])
                elif first not in ("exit", "return"):
                    self._skip(command.Y)
            case "BinaryCmd" | "Subshell":
                for part in command.Stmts or (command.X, command.Y):
                    with self._alone():
                        self._run([part])
            case "Block":
                self._run(command.Stmts)
            case _ if command.Type != "TestClause" and command.Type:
                self._skip(node)

    def _skip(self, node: Node) -> None:
        """Leave a node unread: what it may set is not known from here on."""
        if ENVIRONMENT.match(node.text):
            return
        why = f"`{node.text.splitlines()[0][:60]}` is not read"
        why += ", with its `swift` command" * bool(WITHIN.search(node.text))
        why += f"; {BY_RUN}" * (not SOURCES.search(node.text))
        text, parted = node.text, re.compile(r"[\s;&|(){}]+")
        if self._functions.keys() & set(parted.split(text)) or text[0] in '$"':
            text = "\n".join([text, *self._functions.values()])  # it may call any of them
        words = set(parted.split(text))
        # `set -a` exports what is set later.
        lost = SOURCES.search(text) or ANY.search(text) or words & {"set", "shift"}
        names = [*NAME.findall(text), *(self.variables if lost else ())]
        note = self.forget(names, Note(node.line, "unread", why))
        self.notes.append(note)
        functions = (inner for inner in node.walk() if inner.Type == "FuncDecl")
        self._functions |= {inner.Name.Value: inner.Body.text for inner in functions}
        if lost or words & {"cd", "pushd", "popd"}:
            self.folder = None
            self.variables.pop("PWD", None)
        if lost:
            self.lost, self.arguments = note, None

    # One command -------------------------------------------------------------------------------

    def _assigned(self, node: Node) -> tuple[str, Variable]:
        """What NAME=VALUE or NAME+=VALUE gives a variable; arrays are not read."""
        name, old = node.Name.Value, self.get(node.Name.Value)
        if node.Array or node.Index:
            self._skip(node)
            return name, self.variables[name]
        before = [old.value] if node.Append and old.value else []
        value = joined([*before, *self.pieces(node.Value.Parts if node.Value else ())], node.line)
        # A="$A more" needs no A.
        own = (replace(n, kind="needed") if n.variable == name else n for n in value.notes)
        span = node.Value.span if node.Value and not before else None
        return name, Variable(replace(value, span=span, notes=tuple(own)), old.exported)

    def _assign(self, pairs: Iterable[tuple[str, Variable]], exported: bool = False) -> None:
        for name, variable in pairs:
            self.variables[name] = replace(variable, exported=exported or variable.exported)

    def _simple(self, node: Node, redirections: Sequence[Node]) -> None:
        values = [value for word in node.Args for value in self.expand(word)]
        for inner in node.walk():
            if inner.Type == "CmdSubst" and WITHIN.search(inner.text):
                why = f"a `swift` command within $(...) is not read; {BY_RUN}"
                self.notes.append(Note(inner.line, "unread", why))
        words = [value for value in values if not value.vanishes]
        if not words:
            self._assign(map(self._assigned, node.Assigns))
            return
        name, texts = words[0].text if words[0].known else "", [word.text for word in words]
        if name in ("exit", "return"):
            self._ended = True
        elif name == "cd" and len(texts) == 2 and words[1].known and os.path.isabs(texts[1]):
            self.folder = texts[1] if os.path.isdir(texts[1]) else None
            self.variables.pop("PWD", None)
        elif name in self._functions or (not name and self._functions) or _sets(texts):
            self._skip(node)
        else:
            kept = any(">" in redirection.Op for redirection in redirections)
            fed = " ".join(r.Hdoc.text for r in redirections if r.Hdoc and not kept)
            with self._alone():
                self._assign(map(self._assigned, node.Assigns), True)
                found = self.program(values, fed)
            if found:
                behind = zip(texts, texts[1:], strict=False)
                self._made |= {value for flag, value in behind if OUTPUT.fullmatch(flag)}
            elif "/" in texts[0] or any(MAKERS.fullmatch(os.path.basename(t)) for t in texts[:3]):
                self._made.add(ANYTHING)
            self._ended |= name == "exec" and len(words) > 1

    def program(self, values: Sequence[Value], fed: str = "") -> bool:
        """Take `swift`, or what runs it; say whether it is that."""
        inner = unwrapped([value for value in values if not value.vanishes])
        if inner is None:
            if why := not_read(values, fed):
                self.notes.append(Note(values[0].line, "unread", why))
            return False
        seen = {name: self.get(name) for name in self.variables} | inner.variables
        known, unknown, notes = {}, [], list[Note]()
        for name, variable in seen.items():
            if variable.value and variable.value.known and variable.exported:
                known[name] = variable.value.text
            elif variable.value and variable.exported is not False:
                unknown.append(name)
                notes += variable.value.notes
        at = next(i for i, value in enumerate(values) if value is inner.words[0])
        self.commands.append(
            Command(
                words=list(values[at:]),  # with those that vanish
                made=frozenset(self._made),
                environment=known,
                line=inner.words[0].line,
                notes=[replace(n, kind="needed") if n.kind == "unset" else n for n in notes],
                unknown=frozenset(unknown),
                lost=self.lost is not None,
                folder=Path(self.folder) if self.folder else None,
                launcher=inner.launcher,
                launched=(inner.processes, inner.nodes),
            )
        )
        return True


def not_exported(
    text: str, statements: Sequence[Node], commands: Sequence[Command]
) -> Iterator[Note]:
    """Yield notes on variables that are set for the script alone, and that it never uses."""
    nodes = commands_of(statements)
    uses, printed = (re.sub(r"(?m)(?:^|(?<=\s))#.*", "", text) for _ in range(2))
    for node in nodes:
        if node.Cmd.Args and node.Cmd.Args[0].text in ("echo", "printf"):
            uses = uses.replace(node.text, "")
    for node, below in zip_longest(nodes, nodes[1:]):
        for assigned in node.Cmd.Assigns if not node.Cmd.Args else ():
            name = assigned.Name.Value
            use = re.compile(rf"(?<!\w){name}(?!\w|\+?=)")
            if OF_BASH.fullmatch(name) or any(
                c.lost or name in c.environment or name in c.unknown for c in commands
            ):
                continue
            known, own = is_read(name) or almost(name), len(use.findall(assigned.text))
            if not commands or len(use.findall(uses if known else printed)) > own:
                continue
            why = f"{name} is set for this script alone, and `swift` does not see it"
            why += ", nor does the script use it" * (not known)
            patch: Patch | None = Patch(node.Pos.at, node.Pos.at, "export ")
            if below and "\\" in (gap := text[node.End.at : below.Pos.at]) and GAP.fullmatch(gap):
                ended, patch = end_of(text, node, below)
                why += f": {ended}"
            elif all(c.line < node.line for c in commands):
                why, patch = f"{why}, which stands before this line", None
            else:
                why += f": write `export {name}=...`"
            if near := almost(name):
                why += f"; did you mean {near}?"
            kind, mends = ("not-exported", [patch]) if known else ("unused", [])
            yield note_at(text, assigned.Pos.at, kind, why, *filter(None, mends), name=name)


def _first_word(node: Node) -> str:
    """Return the first word of a command, as written."""
    return node.Args[0].text if node.Type == "CallExpr" and node.Args else ""


def _sets(texts: Sequence[str]) -> bool:
    """Say whether a command may change what is known: all of ``set`` but ``set -euo pipefail``."""
    if texts[0] == "set":
        return not all(re.fullmatch(r"[-+][euxo]+|pipefail|errexit|nounset", t) for t in texts[1:])
    if texts[0] in ("command", "builtin"):
        return texts[1:] != [] and texts[1][:1] != "-"
    return bool(UNREAD.fullmatch(texts[0])) or texts[:2] in (["printf", "-v"], ["wait", "-p"])


def _plain(word: Node) -> bool:
    """Say whether a word of `export` is NAME or NAME=VALUE, without braces that make it several."""
    parts = word.Value.Parts if word.Value else ()
    return bool(word.Name) and not any(part.Type == "Lit" and "{" in part.Value for part in parts)
