"""A script read once, straight from top to bottom, without running anything.

export MAX_PIXELS=${MAX_PIXELS:-401408}
NPROC_PER_NODE=4 nohup \
swift rlhf --model "$MODEL" "$@"        -> Command(words swift, rlhf, --model, ...; line 2)

What a branch, a loop or a function sets is not known behind it, and a `swift` command in one is
read once; bash itself reads these under `--run` (by_bash.py). Nothing is guessed: what a command
would get that was not read is in its notes, with the line.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from swift_vlrft.recipe.tree import Mistake, Node, Note, Span, parse
from swift_vlrft.recipe.words import (
    BY_RUN,
    CHANGES,
    MOST,
    State,
    Value,
    Variable,
    Words,
    braced,
    either,
    notes_of,
    parameters,
    unread,
)
from swift_vlrft.recipe.wrappers import SHELLS, WITHIN, Unwrapped, base, not_read, unwrapped

FOR_SWIFT = re.compile(
    r"NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_(?:ADDR|PORT)|CUDA_VISIBLE_DEVICES|USE_HF|HF_\w+"
    r"|MODELSCOPE_CACHE|PYTORCH_\w*ALLOC_CONF|MAX_PIXELS|MIN_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|ROOT_IMAGE_DIR|VLRFT_\w+"
)
"""Variables that are of use only in the environment of `swift`."""
SETS = ("read", "getopts", "mapfile", "readarray", "printf", "unset", "wait", "let")
"""Builtins that may set the variables that are among their arguments."""
SUCCEEDS = ("set", "shopt", "echo", "true", ":", "unset")
SILENT = re.compile(
    r"\[|test|:|true|false|echo|printf|trap|wait|kill|jobs|umask|ulimit|type|hash|times|pwd|dirs"
    r"|history|logout|disown|suspend|enable|help|alias|unalias|complete|shopt|let"
)
"""Builtins that do not matter here."""
ENVIRONMENTS = re.compile(
    r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|\.?bashrc|\.?bash_profile|\.?profile|nvm\.sh"
    r"|set_env\.sh|setvars\.sh|modules?\.sh|lmod\.sh)\b"
    r"|\b(?:conda|mamba|micromamba|ssh-agent|pyenv|direnv|modulecmd|brew|starship)\b"
)
"""Scripts and hooks that switch an environment on: PATH and the like, no setting of a run."""


@dataclass(kw_only=True)
class Command:
    """A `swift` command, with the environment that it sees."""

    environment: dict[str, str]
    line: int = 1
    notes: list[Note] = field(default_factory=list)
    span: Span | None = None
    """`swift rlhf ...` to its last argument."""
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
    written: frozenset[str] = frozenset()
    """Files that the script writes before."""
    file: Path | None = None
    """The other script that this one runs and in which the command stands; None: this one."""
    text: str = ""
    """The decoded file; spans count its characters."""


class Script(Words):
    """``commands`` are the `swift` commands of a script. ``folder`` is where bash would start."""

    def __init__(
        self,
        environment: Mapping[str, str],
        arguments: Sequence[str] = (),
        script: str | None = None,
        folder: str | None = None,
    ) -> None:
        given = {n: Variable((Value(v, 1),), exported=True) for n, v in environment.items()}
        values = tuple(Value(text, 1) for text in arguments)
        super().__init__(State(given, values, folder or os.getcwd()), script)
        self.commands: list[Command] = []
        self._written = set[str]()
        self._functions: list[Node] = []
        self._blocks: list[tuple[str, int]] = []
        self._ended = False
        self._depth = 0
        """Of files that read files."""
        self._times = Counter[str]()
        """How often the script sets a variable."""
        self._exports = set[str]()
        """Variables that it may export somewhere."""
        self._unseen: dict[tuple[str, int], bool] = {}

    def read(self, text: str, line: int = 0) -> None:
        """Read a script, or the text within another's ``line``; its notes are then in the order of
        its lines. Mistake if bash refuses it or if it is nested too deeply.
        """
        if text.startswith("\ufeff"):
            why = "the file begins with a byte order mark, which bash takes for a part of line 1. "
            why += "Take it away: sed -i '1s/^\\xef\\xbb\\xbf//' FILE"
            self.notes.append(Note(1, "syntax", why))
        if "\r" in text:
            why = "the line ends in a carriage return (Windows), which bash takes for a part of "
            why += "it. Convert the file: sed -i 's/\\r$//' FILE"
            at = text[: text.index("\r")].count("\n") + 1
            self.notes.append(Note(line or at, "continuation", why))
        try:
            statements, notes = parse(text, line)
            self.notes += notes
            if not line:
                self._missing_backslashes(statements, text.split("\n"))
            self._times = Counter(name for node in statements for name in _assigned(node))
            self._exports = {name for node in statements for name in _exported(node)}
            self._exports |= set(self._times) if "" in self._exports else set()
            self.run(statements)
        except RecursionError:
            raise Mistake(1, 1, "commands are nested too deeply") from None
        for (name, at), unseen in self._unseen.items():
            why = f"{name} is set for this script alone, and `swift` does not see it: write "
            why += f"`export {name}=...`, or end the line with a backslash"
            self.notes += [Note(at, "not-exported", why)] * unseen
        self.notes = sorted(dict.fromkeys(self.notes), key=lambda note: note.line)

    def _missing_backslashes(self, statements: Sequence[Node], lines: Sequence[str]) -> None:
        """A line below `swift ...` that looks as if it belonged to it."""
        for node, below in pairwise(statements):
            words = [word.text for word in node.Cmd.Args] if node.Cmd else []
            ends = re.match(r"[ \t\r]*(#.*)?\n", node.source[node.End.at :])
            if "swift" not in words or node.Background or not ends:
                continue
            here, above = lines[below.line - 1], lines[node.line - 1]
            deeper = len(here) - len(here.lstrip()) > len(above) - len(above.lstrip())
            follows = deeper and below.line == node.End.line + 1
            if follows and not here.lstrip().startswith("-"):  # that one is said in any case
                why = f"no backslash ends line {node.End.line}, so bash takes "
                why += f"`{here.strip()[:60]}` for a command of its own: it and all below it are "
                self.notes.append(Note(below.line, "continuation", why + "lost"))

    # Commands in commands ----------------------------------------------------------------------

    def run(self, statements: Iterable[Node]) -> bool:
        """Commands one after the other; whether the last of them certainly succeeds."""
        succeeds = False
        for node in statements:
            if self._ended:
                break
            if node.Background:
                self._alone([node], self._statement)
            else:
                succeeds = self._statement(node) and not node.Negated
        return succeeds

    def _statement(self, node: Node) -> bool:
        command = node.Cmd or node
        if command.Type == "CallExpr":
            return self._simple(command, node.Redirs)
        self._redirected(node.Redirs)
        match command.Type:
            case "DeclClause":
                self._declare(command)
                return True
            case "BinaryCmd" if command.Op in ("&&", "||"):
                return self._chain(command)
            case "BinaryCmd":
                self._alone([command.X], self.run)
                self._alone([command.Y], self.run)
            case "Block":
                return self.run(command.Stmts)
            case "Subshell":
                self._alone(command.Stmts, self.run)
            case "TimeClause":
                return self.run([command.Stmt] if command.Stmt else [])
            case "CoprocClause":
                self._alone([command.Stmt], self.run)
            case "IfClause" | "CaseClause" | "ForClause" | "WhileClause":
                self._branch(command)
            case "FuncDecl":
                self._function(command)
                return True
            case "TestClause":
                self.tested.update(parameters([command]))
            case "ArithmCmd" | "LetClause":
                self.changes(command.text, node.line)
        return False

    def _alone(self, nodes: Sequence[Node], reads: Callable[[Any], object]) -> None:
        """A subshell: nothing that is set there comes back."""
        outer, ended = self.state, self._ended
        self.state = outer.copy()
        reads(nodes[0] if reads == self._statement else nodes)
        self.state, self._ended = outer, ended

    @contextmanager
    def _perhaps(self, what: str, line: int, *, block: bool = True) -> Iterator[None]:
        """What is set within is not known afterwards."""
        before, ended = self.state, self._ended
        self.state = before.copy()
        self._blocks += [(what, line)] * block
        yield
        after, self.state, self._ended = self.state, before, ended
        del self._blocks[len(self._blocks) - block :]
        for name, variable in after.variables.items():
            if before.variables.get(name) != variable:
                same = variable.exported == before.get(name).exported
                self._maybe(name, what, line, exported=False if same else None)
        if after.folder != before.folder:
            before.folder = None
        if after.arguments != before.arguments:
            before.arguments = None
        if after.exports_all != before.exports_all:
            before.exports_all = None
        before.lost = before.lost or after.lost

    def _maybe(self, name: str, what: str, line: int, *, exported: bool | None = False) -> None:
        why = f"it is set in the {what} of line {line}; {BY_RUN}"
        self.unknown(name, line, why, None if name in self._exports else exported)

    def _chain(self, node: Node) -> bool:
        succeeds = self.run([node.X])
        if succeeds and not self._ended:
            return self.run([node.Y]) if node.Op == "&&" else True
        with self._perhaps(f"`{node.Op}`", node.line, block=False):
            self.run([node.Y])
        return False

    def _branch(self, node: Node) -> None:
        kind, line = node.Type.removesuffix("Clause").lower(), node.line
        bodies: list[Sequence[Node]] = []
        if kind in ("for", "while"):
            kind = "select" if node.Select else "until" if node.Until else kind
            for name in _assigned(node):  # by the turn before
                self._maybe(name, f"`{kind}`", line)
            self._looks_into_functions([node])
            if "" in _exported(node):
                self.state.exports_all = None
            for word in node.Loop.Items if node.Loop else ():
                self.expand(word)
            bodies = [[*(node.Cond or ()), *node.Do]]
        elif kind == "case":
            self.tested.update(parameters([node.Word]))
            bodies = [item.Stmts for item in node.Items]
        else:
            self.run(node.Cond)
            while node:
                bodies.append([*(node.Cond if bodies else ()), *node.Then])
                node = node.Else
        for body in bodies:
            with self._perhaps(f"`{kind}`", line):
                self.run(body)

    def _function(self, node: Node) -> None:
        """A function is read where it is defined: known there is what the script sets once, before
        it, and what the caller sets.
        """
        if not node.Name:  # shfmt reads ()(ls), zsh's, in bash's language, too
            self.notes.append(Note(node.line, "syntax", "bash knows no function without a name"))
            return
        self._functions.append(node)
        outer, self.state = self.state, self.state.copy()
        ended, within = self._ended, self.inside
        for name, times in self._times.items():
            if times > 1 or not self.state.get(name).line:
                self._maybe(name, "script", node.line)
        self.state.arguments, self.inside = None, True
        self._blocks.append(("function", node.line))
        self.run([node.Body])
        self._blocks.pop()
        self.state, self._ended, self.inside = outer, ended, within

    def _looks_into_functions(self, nodes: Iterable[Node]) -> None:
        """What a function that is called here sets is not known."""
        first = (
            n.Args[0].text for node in nodes for n in node.walk() if n.Type == "CallExpr" and n.Args
        )
        if not {function.Name.Value for function in self._functions} & {*first}:
            return
        for function in self._functions:
            for name in _assigned(function):
                self._maybe(name, "function", function.line)
            words = {n.Args[0].text for n in function.walk() if n.Type == "CallExpr" and n.Args}
            if words & {"cd", "pushd", "popd"}:
                self.state.folder = None
            if "set" in words:
                self.state.exports_all = None

    # One command -------------------------------------------------------------------------------

    def _assign(self, node: Node, exported: bool | None = False) -> Variable:
        """Carry out NAME=VALUE, NAME+=VALUE or NAME=(...); NAME[...]=VALUE is not followed."""
        name, line, elements = node.Name.Value, node.line, node.Array and node.Array.Elems
        tested, self.tested = self.tested, {*self.tested, name}  # A="$A more" needs no A
        value = self.joined(node.Value) if node.Value else Value("", line)
        self.tested = tested
        old = self.state.get(name)
        before = old.items if node.Append else ()
        items = [v for e in elements for v in self.expand(e.Value) if not v.vanishes]
        one_by_one = node.Index or any(element.Index for element in elements)
        if one_by_one or (node.Append and old.array and not node.Array):
            variable = Variable((unread(f"${name}", line, "its items are set one by one"),))
        elif len(before) + len(items) > MOST // 20:
            variable = Variable((unread(f"${name}", line, "it has too many items"),))
        elif node.Array:
            variable = Variable((*before, *items), True)
        else:
            both = (*before, value)
            if before and all(one.known for one in both):
                value = replace(value, text="".join(one.text for one in both)[: MOST + 1])
            elif before:
                value = Value(f"${name}", line, False, None, notes_of(both), True)
            variable = Variable((value,))
        self.used.discard(name)
        exported = either(exported, old.exported, self.state.exports_all)
        variable = replace(variable, exported=exported, line=0 if node.inner else line)
        self.state.variables[name] = variable
        return variable

    def _declare(self, node: Node) -> None:
        """export, readonly, local, declare ...: what options do to a value is not followed."""
        kind, options = node.Variant.Value, ""
        for word in node.Args:
            if not word.Name:
                for value in self.expand(word.Value or word):
                    if value.known and value.text[:1] in ("-", "+"):
                        options += value.text
                    elif not value.vanishes:  # export "$NAME=$VALUE"
                        self.lose(word.line, f"`{kind} {word.text}` may set any variable")
                continue
            name = word.Name.Value
            if not word.Naked:
                self._assign(word)
                if word.Value and braced(word.Value):
                    self.unknown(name, word.line, f"`{kind} {word.text}` sets it")
            elif kind != "export" and "x" not in options and self.inside:
                self.unknown(name, word.line, f"`{kind}` declares it")
            if kind != "export" and "n" in options:
                why = f"`{kind} {options}` gives a variable a second name, which is not followed"
                raise Mistake(word.line, 1, f"{why}; {BY_RUN}")
            if kind != "export" and set(options) & set("iluA"):
                self.unknown(name, word.line, f"`{kind} {options}` sets it")
            if kind == "export" or "x" in options:
                exported = "n" not in options and "+" not in options
                self.state.variables[name] = replace(self.state.get(name), exported=exported)

    def _redirected(self, redirections: Iterable[Node]) -> None:
        """The files that output goes to are written."""
        for node in redirections:
            if "<<" not in node.Op:
                self._written.update(target.text for target in self.expand(node.Word))

    def _simple(self, node: Node, redirections: Sequence[Node]) -> bool:
        values = [value for word in node.Args for value in self.expand(word)]
        fed = " ".join(r.Hdoc.text for r in redirections if r.Hdoc)
        self._redirected(redirections)
        for inner in node.walk():
            if inner.Type == "CmdSubst" and WITHIN.search(inner.text[2:]):
                why = f"a `swift` command within $(...) is not read; {BY_RUN}"
                self.notes.append(Note(inner.line, "unread", why))
        given = [value for value in values if not value.vanishes]
        if not given:
            for assigned in node.Assigns:
                self._assign(assigned)
            runs = any(n.Type == "CmdSubst" for a in node.Assigns for n in a.walk())
            return not runs and not node.Args
        first = given[0]
        if first.text.startswith("-") and first.known and not values[0].vanishes:
            why = f"{first.text} stands alone: no backslash ends the line before it (or a comment "
            why += "stands between), so bash takes it for a command, and this flag and all below it"
            self.notes.append(Note(first.line, "continuation", f"{why} are lost"))
            return False
        outer = dict(self.state.variables)
        overlay = {a.Name.Value: self._assign(a, True) for a in node.Assigns}
        if given[0].text in ("command", "builtin") and given[1:]:
            given = given[1:]
        succeeds = self._command(node, given, values, fed)
        for name, variable in overlay.items():  # it holds for the one command alone
            if self.state.variables.get(name) is variable:
                self.state.variables[name] = outer.get(name, Variable())
        return succeeds

    def _command(self, node: Node, given: list[Value], values: list[Value], fed: str) -> bool:
        name, line = given[0].text if given[0].known else "", given[0].line
        rest = given[1:]
        if name in {function.Name.Value for function in self._functions}:
            self._looks_into_functions([node])
            if why := not_read(given):
                self.notes.append(Note(line, "unread", f"{why}; {BY_RUN}"))
        elif name in ("exit", "return", "break", "continue"):
            self._ended = True
        elif name in ("cd", "pushd", "popd"):
            self._cd(rest if name != "popd" else [Value("-", line)])
        elif name in ("source", "."):
            self._source(rest, line)
        elif name == "eval":
            text = " ".join(value.text for value in rest)
            if ENVIRONMENTS.search(text):
                self.notes.append(Note(line, "unread", f"`eval {text}` is not read"))
            else:
                self.lose(line, f"`eval {text}` may do anything: it is not read")
        elif name == "set":
            self._set(rest)
        elif name == "shift":
            count = rest[0].text if rest else "1"
            known = self.state.arguments is not None and re.fullmatch("[0-9]{1,9}", count)
            self.state.arguments = self.state.arguments[int(count) :] if known else None  # type: ignore[index]
        elif name == "unset":
            for value in rest:
                if value.known and re.fullmatch(r"\w+", value.text):
                    self.state.variables[value.text] = Variable()
                elif not value.text.startswith("-"):
                    self.lose(line, f"`unset {value.text}` is not read")
        elif name in SETS:
            flags = [value.text for value in rest[:1]]
            for value in (
                rest if name not in ("printf", "wait") or flags[:1] in (["-v"], ["-p"]) else ()
            ):
                self.unknown(value.text, line, f"`{name}` sets it")
        elif SILENT.fullmatch(name):
            self.tested.update(parameters(node.Args) if name in ("[", "test") else ())
        else:
            self.program(values, fed)
            self._ended = name == "exec" and len(given) > 1
        return name in SUCCEEDS

    def _cd(self, values: Sequence[Value]) -> None:
        targets = [v for v in values if not re.fullmatch(r"-[LPe@]+|--", v.text)]
        folder, self.state.folder = self.state.folder, None
        if targets and targets[0].known and targets[0].text != "-":
            path = os.path.normpath(os.path.join(folder or "", targets[0].text))
            if os.path.isabs(path) and os.path.isdir(path):
                self.state.folder = path
        elif not targets:
            self.state.folder = self.state.get("HOME").text

    def _source(self, values: Sequence[Value], line: int) -> None:
        words = " ".join(value.text for value in values)
        why = f"`source {words}` may set variables: it is not read"
        if values and ENVIRONMENTS.search(values[0].text):
            self.notes.append(Note(line, "unread", why))
            return
        try:
            known = values and values[0].known and self._depth < 5
            text = (
                Path(self.state.folder or "/nowhere", values[0].text).read_text() if known else ""
            )
            statements, notes = parse(text, line)
        except (OSError, ValueError):
            known = False
        if not known:
            self.lose(line, why)
            return
        self.notes += notes
        self._depth += 1
        arguments, ended = self.state.arguments, self._ended
        self.state.arguments = tuple(values[1:]) or arguments
        self.run(statements)
        self.state.arguments, self._ended = arguments, ended
        self._depth -= 1

    def _set(self, values: Sequence[Value]) -> None:
        rest = list(values)
        while rest and rest[0].known and rest[0].text[:1] in ("-", "+"):
            text = rest.pop(0).text
            if text == "--":
                break
            option = rest.pop(0).text if text.endswith("o") and rest else ""
            if "a" in text or option == "allexport":
                self.state.exports_all = text[0] == "-"
        else:
            if not rest:
                return
        known = not any(value.many for value in rest) and len(rest) <= MOST // 20
        self.state.arguments = tuple(v for v in rest if not v.vanishes) if known else None

    def program(self, values: Sequence[Value], fed: str = "") -> None:
        """`swift`, what runs it, or another program, which is of no use here."""
        given = [value for value in values if not value.vanishes]
        inner = unwrapped(given)
        if inner is None:
            if why := not_read(values, fed):
                self.notes.append(Note(values[0].line, "unread", why))
            return
        state = self._handed_on(inner, values[0].line)
        seen = {
            name: variable
            for name, variable in state.variables.items()
            if variable.exported is not False and variable.items and not variable.array
        }
        if base(inner.words[0]) in SHELLS:
            self._another_shell(inner.words, replace(state, variables=seen))
            return
        at = next(i for i, value in enumerate(values) if value is inner.words[0])
        words, line = list(values[at:]), inner.words[0].line  # with those that vanish
        texts = {name: variable.text for name, variable in seen.items() if variable.exported}
        environment = {name: text for name, text in texts.items() if text is not None}
        unknown = frozenset(seen.keys() - environment.keys())
        notes = [note for name in sorted(unknown) for note in notes_of(seen[name].items)]
        spans = [value.span for value in words if value.span]
        self.commands.append(
            Command(
                words=words,
                written=frozenset(self._written),
                environment=environment,
                line=line,
                notes=[replace(n, kind="needed") if n.kind == "unset" else n for n in notes],
                span=Span(spans[0].start, spans[-1].end, False) if words[0].span else None,
                unknown=unknown,
                lost=state.lost is not None,
                folder=Path(state.folder) if state.folder else None,
                launcher=inner.launcher,
                launched=(inner.processes, inner.nodes),
            )
        )
        if self._blocks:
            kind, begin = self._blocks[-1]
            why = f"inside the {kind} of line {begin}: read once, as if it ran; {BY_RUN}"
            self.notes.append(Note(line, "conditional", why))
        for name, variable in state.variables.items():
            if FOR_SWIFT.fullmatch(name) and variable.line and variable.items:
                sees = variable.exported is not False or name in self.used
                key = (name, variable.line)
                self._unseen[key] = self._unseen.get(key, True) and not sees

    def _handed_on(self, inner: Unwrapped, line: int) -> State:
        """The state with the variables that `env`, `sudo` and the like hand on."""
        variables = {} if inner.clears else self.state.variables
        state = replace(self.state, variables={**variables, **inner.variables})
        if inner.hides:
            state.lost = Note(line, "unread", "which variables are handed on is not known")
            for name in variables.keys() - inner.variables.keys():
                value = Value(f"${name}", line, False, None, (state.lost,), True)
                exported = variables[name].exported or None
                state.variables[name] = Variable((value,), exported=exported)
        return state

    def _another_shell(self, words: Sequence[Value], state: State) -> None:
        """`bash -c TEXT NAME ARGUMENTS`, or `bash FILE ARGUMENTS`."""
        who, *rest = words
        options = ""
        while rest and rest[0].known and rest[0].text[:1] in ("-", "+"):
            options += "" if rest[0].text.startswith("--") else rest[0].text
            del rest[0]
        why = f"`{' '.join(word.text for word in words[:3])[:80]}` is not read"
        if not rest or not all(word.known for word in rest) or self._depth > 4:
            self.notes.append(
                Note(who.line, "unread", f"{why}: give the `swift` command by itself")
            )
            return
        inside, file = "c" in options, Path(state.folder or "/nowhere", rest[0].text)
        given = [value.text for value in rest[2 if inside else 1 :]]
        other = Script(
            {}, given, (rest[1].text if rest[1:] else who.text) if inside else rest[0].text
        )
        other.state = replace(state, arguments=other.state.arguments, exports_all=False)
        other._depth = self._depth + 1
        try:
            text = rest[0].text if inside else file.read_text()
            other.read(text, who.line if inside else 0)
        except (OSError, ValueError) as error:
            self.notes.append(Note(who.line, "unread", f"{why}: {error}"))
            return
        for command in other.commands:
            if not inside and not command.file:
                command.file, command.text = file, text
                command.notes += other.notes
        self.commands += other.commands
        self.notes += other.notes if inside else []


def _assigned(tree: Node) -> Iterator[str]:
    """The names of all variables that a part of a script may set."""
    for node in tree.walk():
        if node.Name and node.Type in ((), "WordIter"):
            yield node.Name.Value
        elif node.Type == "CallExpr" and node.Args and node.Args[0].text in SETS:
            yield from (word.text.strip("'\"") for word in node.Args[1:])
        elif node.Type in ("ArithmCmd", "ArithmExp", "LetClause", "CStyleLoop"):
            yield from (match[1] or match[2] for match in CHANGES.finditer(node.text))
        elif node.Type == "ParamExp" and node.Exp and node.Exp.Op in ("=", ":="):
            yield node.Param.Value


def _exported(tree: Node) -> Iterator[str]:
    """The names of all variables that a part of a script may export; "" for any, by `set -a`."""
    for node in tree.walk():
        if node.Type == "DeclClause":
            yield from (word.Name.Value for word in node.Args if word.Name)
        elif node.Type == "CallExpr" and node.Args:
            yield from (assigned.Name.Value for assigned in node.Assigns)
            yield from [""] * (node.Args[0].text == "set" and "a" in node.text)
