"""Read a script once, straight from top to bottom, without running anything.

export MAX_PIXELS=${MAX_PIXELS:-401408}
NPROC_PER_NODE=4 nohup \
swift rlhf --model "$MODEL" "$@"        -> Command(words swift, rlhf, --model, ...; line 2)

Branches, loops, functions, arrays, `eval` and `source` are not read: a note names the line, and
what they may set is not known from there on. bash itself reads them under `--run` (by_bash.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from swift_vlrft.recipe.lines import wrong_lines
from swift_vlrft.recipe.tree import Mistake, Node, Note, parse
from swift_vlrft.recipe.words import BY_RUN, SETS, Value, Variable, Words, joined, set_by
from swift_vlrft.recipe.wrappers import ENVIRONMENT, MAKERS, SHELLS, WITHIN, not_read, unwrapped

FOR_SWIFT = re.compile(
    r"NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_(?:ADDR|PORT)|CUDA_VISIBLE_DEVICES|USE_HF|HF_\w+"
    r"|MODELSCOPE_CACHE|PYTORCH_\w*ALLOC_CONF|MAX_PIXELS|MIN_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|ROOT_IMAGE_DIR|VLRFT_\w+"
)
"""Variables that are of use only in the environment of `swift`."""
SOURCES = ("source", ".", "eval")
UNREAD = (*SETS, "cd", "pushd", "popd", "set", "shift", *SOURCES, "export", "declare", "readonly")
"""Builtins after which something is not known."""
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
    """``commands`` are the `swift` commands of a script, and `bash FILE.sh`."""

    def __init__(
        self, environment: Mapping[str, str], arguments: Sequence[str] = (), script: str = ""
    ) -> None:
        super().__init__(environment, arguments, script)
        self.commands: list[Command] = []
        self._made = set[str]()
        self._functions: dict[str, Node] = {}
        self._exports_all: bool | None = False
        self._ended = False
        self._unseen: dict[tuple[str, int], bool] = {}

    def read(self, text: str) -> None:
        """Read a script; its notes are then in the order of its lines. Mistake if bash refuses it
        or if it is nested too deeply.
        """
        try:
            statements, notes = parse(text)
            self.notes += [*notes, *wrong_lines(text, statements)]
            self._run(statements)
        except RecursionError:
            raise Mistake(1, 1, "commands are nested too deeply") from None
        for (name, line), unseen in self._unseen.items():
            why = f"{name} is set for this script alone, and `swift` does not see it: write "
            why += f"`export {name}=...`, or end the line with a backslash"
            self.notes += [Note(line, "not-exported", why)] * unseen
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
        saved = dict(self.variables), self.arguments, self.folder, self.lost, self._exports_all
        ended = self._ended
        yield
        self.variables, self.arguments, self.folder, self.lost, self._exports_all = saved
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
                piped = behind.Op in ("|", "|&") or behind.Type == "Subshell"
                if piped or first_word(behind) not in ("", *UNREAD, "exec", "exit", "return"):
                    self._run([command.Y])
                elif first_word(behind) not in ("exit", "return"):
                    self._skip(command.Y)
            case "BinaryCmd" | "Subshell":
                for part in command.Stmts or (command.X, command.Y):
                    with self._alone():
                        self._run([part])
            case "Block" | "TimeClause":
                self._run(command.Stmts or filter(None, [command.Stmt]))
            case "TestClause":
                self.tested.update(parameters([command]))
            case _ if command.Type:
                self._skip(node)

    def _skip(self, node: Node) -> None:
        """Leave a node unread: what it may set is not known from here on."""
        if ENVIRONMENT.match(node.text):
            return
        why = f"`{node.text.splitlines()[0][:60]}` is not read"
        why += ", with its `swift` command" * bool(WITHIN.search(node.text))
        why += f"; {BY_RUN}" * (first_word(node) not in SOURCES)
        names = {name for inner in node.walk() for name in set_by(inner)}
        note = Note(node.line, "unread", why, " ".join(sorted(names)))
        self.notes.append(note)
        self.tested.update(parameters([node]))
        defined = [inner for inner in node.walk() if inner.Type == "FuncDecl" and inner.Name]
        self._functions |= {inner.Name.Value: inner for inner in defined}
        self._forget(node, note)

    def _forget(self, node: Node, note: Note) -> None:
        """Take what a node may set as unknown; a call of a function may be of any."""
        for name in {name for inner in node.walk() for name in set_by(inner)}:
            self.unknown(name, note)
        for inner in node.walk():
            first, words = first_word(inner), inner.text if inner.Args else ""
            if first in ("cd", "pushd", "popd"):
                self.folder = None
            elif first in ("set", "shift"):
                self.arguments = None
                self._exports_all = None if "a" in words[3:] else self._exports_all
            if first in self._functions or ("$" in first and self._functions):
                bodies, self._functions = self._functions, {}
                for body in bodies.values():
                    self._forget(body, note)
                self._functions = bodies
            hidden = re.match(r"(?:command|builtin) [^-]|[\\'\"]", words)  # which sees through it
            if hidden or first in SOURCES or _sets_any(inner):
                self.lose(note)

    def lose(self, note: Note) -> None:
        """Something that is not read may have set anything."""
        self.lost, self.arguments, self.folder = note, None, None
        for name in list(self.variables):
            self.unknown(name, note)

    # One command -------------------------------------------------------------------------------

    def _assigned(self, node: Node) -> tuple[str, Variable]:
        """What NAME=VALUE or NAME+=VALUE gives a variable; arrays are not read."""
        name, old = node.Name.Value, self.get(node.Name.Value)
        if node.Array or node.Index:
            self._skip(node)
            return name, self.variables[name]
        tested, self.tested = self.tested, {*self.tested, name}  # A="$A more" needs no A
        before = [old.value] if node.Append and old.value else []
        value = joined([*before, *self.pieces(node.Value.Parts if node.Value else ())], node.line)
        self.tested = tested
        value = value if before or not node.Value else replace(value, span=node.Value.span)
        both = (old.exported, self._exports_all)
        exported = True if True in both else None if None in both else False
        return name, Variable(value, exported, node.line)

    def _assign(self, pairs: Iterable[tuple[str, Variable]], exported: bool = False) -> None:
        for name, variable in pairs:
            self.used.discard(name)
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
        if name in ("command", "builtin") and texts[1:] and texts[1][:1] != "-":
            name = texts[1]
        if name.startswith("-") and words[0] is values[0]:
            why = f"{name} stands alone: no backslash ends the line before it (or a comment stands "
            why += "between), so bash takes it for a command, and this flag and all below it are "
            self.notes.append(Note(words[0].line, "continuation", f"{why}lost"))
        elif name in self._functions or (not name and self._functions):
            self._skip(node)
        elif name in ("exit", "return"):
            self._ended = True
        elif name == "cd" and texts[1:] and words[1].known and texts[1][0] not in "-":
            path = os.path.normpath(os.path.join(self.folder or "", texts[1]))
            self.folder = path if os.path.isabs(path) and os.path.isdir(path) else None
            self.variables.pop("PWD", None)
        elif name == "set" and all(re.match(r"[-+]\w|pipefail|allexport", t) for t in texts[1:]):
            if match := re.search(r" ([-+])(?:\w*a|o allexport)", " ".join(texts)):
                self._exports_all = match[1] == "-"
        elif name == "unset" and all(map(str.isidentifier, texts[1:])):
            self.variables |= {name: Variable() for name in texts[1:]}
        elif name in UNREAD or texts[:2] in (["printf", "-v"], ["wait", "-p"]):
            self._skip(node)
        else:
            self.tested.update(parameters(node.Args) if name in ("[", "test") else ())
            kept = any(">" in redirection.Op for redirection in redirections)
            fed = " ".join(r.Hdoc.text for r in redirections if r.Hdoc and not kept)
            with self._alone():
                self._assign(map(self._assigned, node.Assigns), True)
                found = self.program(values, fed)
            if found and self.commands[-1].words[0].text not in SHELLS:
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
        for name, variable in self.variables.items():
            if FOR_SWIFT.fullmatch(name) and variable.line and variable.value:
                sees = name in (*known, *unknown) or name in self.used
                key = (name, variable.line)
                self._unseen[key] = self._unseen.get(key, True) and not sees
        return True


def parameters(words: Iterable[Node]) -> Iterator[str]:
    """Return the names of all variables in words."""
    return (n.Param.Value for word in words for n in word.walk() if n.Type == "ParamExp")


def first_word(node: Node) -> str:
    """Return the first word of a command, as written."""
    return node.Args[0].text if node.Type == "CallExpr" and node.Args else ""


def _plain(word: Node) -> bool:
    """Say whether a word of `export` is NAME or NAME=VALUE, without braces that make it several."""
    parts = word.Value.Parts if word.Value else ()
    return bool(word.Name) and not any(part.Type == "Lit" and "{" in part.Value for part in parts)


def _sets_any(node: Node) -> bool:
    """Say whether a node may set a variable whose name is not written there."""
    if node.Type != "DeclClause":
        return first_word(node) in SETS and "$" in node.text
    words = [word.text for word in node.Args if not word.Name]
    return any(re.match(r"-\w*n|[^-+]", word) for word in words)  # declare -n, export "$NAME"
