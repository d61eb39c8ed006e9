"""Read a script once, straight from top to bottom, without running anything.

export MAX_PIXELS=${MAX_PIXELS:-401408}
NPROC_PER_NODE=4 nohup \
swift rlhf --model "$MODEL" "$@"        -> Command(words swift, rlhf, --model, ...; line 2)

What a branch, a loop or a function sets is nowhere known, and a `swift` command in one is read
once; bash itself reads these under `--run` (by_bash.py). Nothing is guessed: what a command would
get that was not read is in its notes, with the line.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from swift_vlrft.recipe.ahead import BRANCHES, SETS, first_word, scan_assignments, set_by
from swift_vlrft.recipe.lines import wrong_lines
from swift_vlrft.recipe.tree import Mistake, Node, Note, parse
from swift_vlrft.recipe.words import (
    BY_RUN,
    MOST,
    Value,
    Variable,
    Words,
    any_exported,
    braced,
    notes_of,
    parameters,
)
from swift_vlrft.recipe.wrappers import (
    A_SCRIPT,
    ASSIGNMENT,
    SHELLS,
    WITHIN,
    base,
    made_by,
    not_read,
    unwrapped,
)

FOR_SWIFT = re.compile(
    r"NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_(?:ADDR|PORT)|CUDA_VISIBLE_DEVICES|USE_HF|HF_\w+"
    r"|MODELSCOPE_CACHE|PYTORCH_\w*ALLOC_CONF|MAX_PIXELS|MIN_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|ROOT_IMAGE_DIR|VLRFT_\w+"
)
"""Variables that are of use only in the environment of `swift`."""
SILENT = re.compile(
    r"\[|test|:|true|false|echo|printf|trap|wait|kill|jobs|umask|ulimit|type|hash|times|pwd|dirs"
    r"|history|logout|disown|suspend|enable|help|alias|unalias|complete|shopt"
)
"""Builtins that do not matter here."""
ACTIVATION_VARIABLES = re.compile(
    r"CONDA_\w+|\w*PATH|CUDA_HOME|VIRTUAL_ENV|LD_PRELOAD|PS1|PYTHON\w*|NCCL_HOME|JAVA_HOME"
)
BY_ITSELF = "give the `swift` command by itself"
ENVIRONMENTS = re.compile(
    r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|\.?bashrc|\.?bash_profile|\.?profile|nvm\.sh"
    r"|set_env\.sh|setvars\.sh|modules?\.sh|lmod\.sh)\b"
    r"|\b(?:conda|mamba|micromamba|ssh-agent|pyenv|direnv|modulecmd|brew|starship)\b"
)
"""Scripts and hooks that switch an environment on: PATH and the like, no setting of a run."""
SHELL_OPTIONS = ("pipefail", "errexit", "nounset", "xtrace", "allexport", "noglob")


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
    written: frozenset[str] = frozenset()
    """Files that the script writes before."""
    maybe_written: frozenset[str] = frozenset()
    """Paths that the script may make before (wrappers.py: made_by)."""
    file: Path | None = None
    """The other script that this one runs and in which the command stands; None: this one."""
    text: str = ""
    """The decoded file; spans count its characters."""


class Script(Words):
    """``commands`` are the `swift` commands of a script, whose ``$0`` is ``script``."""

    def __init__(
        self, environment: Mapping[str, str], arguments: Sequence[str] = (), script: str = ""
    ) -> None:
        super().__init__(
            {name: Variable((Value(v, 1),), exported=True) for name, v in environment.items()},
            tuple(Value(text, 1) for text in arguments),
            os.getcwd(),
            script,
        )
        self.commands: list[Command] = []
        self._written, self._maybe_written = set[str](), set[str]()
        self._functions: dict[str, Node] = {}
        """Those that are not read yet."""
        self._called = set[str]()
        self._times = Counter[str]()
        """How often the script sets a variable."""
        self._blocks: list[tuple[str, int]] = []
        self._ended = False
        self._depth = 0
        """Of files that read files."""
        self._unseen: dict[tuple[str, int], bool] = {}

    def read(self, text: str) -> None:
        """Read a script; its notes are then in the order of its lines. Mistake if bash refuses it
        or if it is nested too deeply.
        """
        try:
            statements, notes = parse(text)
            self.notes += [*notes, *wrong_lines(text, statements)]
            self._times, self.conditional, self.exports = scan_assignments(statements)
            self.run(statements)
        except RecursionError:
            raise Mistake(1, 1, "commands are nested too deeply") from None
        for name, function in self._functions.items():
            if WITHIN.search(function.text):
                why = f"the function {name} is not called here: it is not read"
                self.notes.append(Note(function.line, "unread", why))
        for (name, line), unseen in self._unseen.items():
            why = f"{name} is set for this script alone, and `swift` does not see it: write "
            why += f"`export {name}=...`, or end the line with a backslash"
            self.notes += [Note(line, "not-exported", why)] * unseen
        self.notes = sorted(dict.fromkeys(self.notes), key=lambda note: note.line)

    # Commands in commands ----------------------------------------------------------------------

    def run(self, statements: Iterable[Node]) -> None:
        for node in statements:
            if self._ended:
                break
            command = node.Cmd or node
            if node.Background or command.Type in ("Subshell", "CoprocClause"):
                with self._alone():
                    self._statement(node, command)
            else:
                self._statement(node, command)

    def _statement(self, node: Node, command: Node) -> None:
        if command.Type == "CallExpr":
            self._simple(command, node.Redirs)
            return
        self._redirected(node.Redirs)
        match command.Type:
            case "DeclClause":
                self._declare(command)
            case "BinaryCmd" if command.Op in ("&&", "||"):
                self.run([command.X])
                with self._block("", node.line):
                    self.run([command.Y])
            case "BinaryCmd":
                for part in (command.X, command.Y):
                    with self._alone():
                        self.run([part])
            case "Block" | "Subshell":
                self.run(command.Stmts)
            case "TimeClause" | "CoprocClause":
                self.run([command.Stmt] if command.Stmt else [])
            case "FuncDecl":
                if command.Name:
                    self._functions[command.Name.Value] = command
                else:  # shfmt reads ()(ls), zsh's, in bash's language, too
                    why = "bash knows no function without a name"
                    self.notes.append(Note(node.line, "syntax", why))
            case "IfClause" | "CaseClause" | "ForClause" | "WhileClause":
                self.tested.update(parameters([command.Word] if command.Word else []))
                if command.Type == "IfClause":
                    self.run(command.Cond)
                with self._block(BRANCHES[command.Type], node.line, command):
                    for body in _bodies(command):
                        self.run(body)
            case "TestClause":
                self.tested.update(parameters([command]))
            case "ArithmCmd" | "LetClause":
                self.changes(command.text, node.line)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A subshell: nothing that is set there comes back."""
        saved = dict(self.variables), self.arguments, self.folder, self.exports_all, self.lost
        ended = self._ended
        yield
        self.variables, self.arguments, self.folder, self.exports_all, self.lost = saved
        self._ended = ended

    @contextmanager
    def _block(self, what: str, line: int, node: Node | None = None) -> Iterator[None]:
        """The body may run never or often: it ends nothing, and ``node`` may read other files."""
        reads = (
            [n.text for n in node.walk() if first_word(n) in ("source", ".", "eval")]
            if node
            else []
        )
        if not all(map(ENVIRONMENTS.search, reads)):
            self.lose(line, f"what is read in the {what} of line {line} may set any variable")
        if node and any(first_word(inner) in ("cd", "pushd", "popd") for inner in node.walk()):
            self.folder = None
        self._blocks.append((what, line))
        yield
        self._blocks.pop()

    def _call(self, name: str, line: int, words: Sequence[Value]) -> None:
        """A function is read where it is called first: known there is what the script sets once,
        before it, and what the caller sets.
        """
        if why := not_read(words):
            self.notes.append(Note(line, "unread", f"{why}; {BY_RUN}"))
        function = self._functions.pop(name)
        self._called.add(name)
        conditional, arguments = dict(self.conditional), self.arguments
        for other, times in self._times.items():
            if times > 1:
                why = f"${other} is not read: it is set {times} times; {BY_RUN}"
                self.conditional.setdefault(other, Note(function.line, "unread", why))
        self.arguments = None
        with self._block("function", function.line, function):
            self.run([function.Body])
        self.conditional, self.arguments = conditional, arguments

    # One command -------------------------------------------------------------------------------

    def _assign(self, node: Node, exported: bool | None = False) -> Variable:
        """Carry out NAME=VALUE, NAME+=VALUE or NAME=(...); NAME[...]=VALUE is not followed."""
        name, line, elements = node.Name.Value, node.line, node.Array and node.Array.Elems
        tested, self.tested = self.tested, {*self.tested, name}  # A="$A more" needs no A
        value = self.joined(node.Value) if node.Value else Value("", line)
        self.tested = tested
        old = self.get(name)
        before = old.items if node.Append else ()
        items = (*before, *(v for e in elements for v in self.expand(e.Value) if not v.vanishes))
        if not node.Array:
            text = "".join(item.text for item in (*before, value))
            known = all(item.known for item in (*before, value)) and len(text) <= MOST
            items = (replace(value, text=text, known=known, notes=notes_of((*before, value))),)
        one_by_one = node.Index or any(element.Index for element in elements)
        if one_by_one or (node.Append and old.array and not node.Array) or len(items) > MOST // 20:
            note = Note(line, "unread", f"${name} is not read: its items are set one by one", name)
            items = (Value(f"${name}", line, False, None, (note,), True),)
        exported = any_exported(exported, old.exported, self.exports_all)
        return Variable(items, bool(node.Array), exported, 0 if node.inner else line)

    def _set_to(self, name: str, variable: Variable) -> None:
        self.used.discard(name)
        self.variables[name] = variable

    def _declare(self, node: Node) -> None:
        """export, readonly, local, declare ...: what options do to a value is not followed."""
        kind, options = node.Variant.Value, ""
        # bash expands all words before it assigns the first.
        assigned = {w.Pos.at: self._assign(w) for w in node.Args if w.Name and not w.Naked}
        for word in node.Args:
            if not word.Name:
                for value in self.expand(word.Value or word):
                    if value.known and value.text[:1] in ("-", "+"):
                        options += value.text
                    elif value.known and (match := ASSIGNMENT.match(value.text)):  # "A=b"
                        text = replace(value, text=value.text[match.end() :], span=None)
                        exported = kind == "export" or self.get(match[1]).exported
                        self._set_to(match[1], Variable((text,), False, exported, word.line))
                    elif not value.vanishes:  # export "$NAME=$VALUE"
                        self.lose(word.line, f"`{kind} {word.text}` may set any variable")
                continue
            name = word.Name.Value
            if kind != "export" and "n" in options:
                why = f"`{kind} {options}` gives a variable a second name, which is not followed"
                raise Mistake(word.line, 1, f"{why}; {BY_RUN}")
            if not word.Naked:
                self._set_to(name, assigned[word.Pos.at])
            odd = kind != "export" and set(options) & set("iluA")
            if odd or (word.Value and braced(word.Value)):
                self.unknown(name, word.line, f"`{kind} {word.text}` sets it")
            if kind == "export" or "x" in options:
                exported = "n" not in options and "+" not in options
                self.variables[name] = replace(self.get(name), exported=exported)

    def _redirected(self, redirections: Iterable[Node]) -> None:
        """The files that output goes to are written."""
        for node in redirections:
            if "<<" not in node.Op:
                self._written.update(target.text for target in self.expand(node.Word))

    def _simple(self, node: Node, redirections: Sequence[Node]) -> None:
        values = [value for word in node.Args for value in self.expand(word)]
        self._redirected(redirections)
        for inner in node.walk():
            if inner.Type == "CmdSubst" and WITHIN.search(inner.text[2:]):
                why = f"a `swift` command within $(...) is not read; {BY_RUN}"
                self.notes.append(Note(inner.line, "unread", why))
        words = [value for value in values if not value.vanishes]
        if not words:
            for assigned in node.Assigns:
                self._set_to(assigned.Name.Value, self._assign(assigned))
            return
        if words[0].text.startswith("-") and words[0].known and words[0] is values[0]:
            why = f"{words[0].text} stands alone: no backslash ends the line before it (or a "
            why += "comment stands between), so bash takes it for a command, and this flag and all "
            self.notes.append(Note(words[0].line, "continuation", f"{why}below it are lost"))
            return
        if words[0].text in ("command", "builtin") and words[1:]:
            words = words[1:]
        name, line, rest = words[0].text if words[0].known else "", words[0].line, words[1:]
        if name in self._functions:
            self._call(name, line, words)
        elif name in self._called:
            pass
        elif name in ("exit", "return", "break", "continue"):
            self._ended = not self._blocks
        elif name in ("cd", "pushd", "popd"):
            self._cd(rest if name != "popd" else [Value("-", line)])
        elif name in ("source", "."):
            self._source(rest, line)
        elif name == "eval":
            text = " ".join(value.text for value in rest)
            if ENVIRONMENTS.search(text):
                self._environment(line, f"`eval {text}` is not read")
            else:
                self.lose(line, f"`eval {text}` may do anything: it is not read; {BY_RUN}")
        elif name in ("conda", "mamba", "micromamba", "module") and rest[:1] != []:
            runs = rest[0].text == "run"
            if runs:
                self.program(values)
            else:
                self._environment(line, f"`{node.text[:60]}` switches an environment on")
        elif name in ("export", "readonly", "declare", "local", "typeset"):
            self.lose(line, f"`{node.text[:60]}` is not read")
        elif name == "set":
            self._set([value.text for value in rest])
        elif name == "shift":
            self.arguments = None
        elif name == "unset" and all(value.known for value in rest):
            for value in rest:
                if "[" in value.text:
                    self.unknown(value.text.partition("[")[0], line, "an item of it is unset")
                else:
                    self.variables[value.text] = Variable()
        elif name in SETS:
            for name_set in set_by(node, set()):
                self.unknown(name_set, line, f"`{name}` sets it")
            if any(not value.known for value in rest) and name != "printf":
                self.lose(line, f"`{node.text[:60]}` may set any variable")
        elif SILENT.fullmatch(name):
            self.tested.update(parameters(node.Args) if name in ("[", "test") else ())
            self.globs = self.globs and not (name == "shopt" and "glob" in node.text)
            if name in ("alias", "trap") and WITHIN.search(node.text):
                why = f"the `swift` command of `{name}` is not read; {BY_ITSELF}"
                self.notes.append(Note(line, "unread", why))
        else:
            # What is kept as a file, no script, is a text that nothing runs.
            files = [r.Word.text for r in redirections if ">" in r.Op]
            saved = files and not any(map(A_SCRIPT.search, files))
            fed = " ".join(r.Hdoc.text for r in redirections if r.Hdoc and not saved)
            conditional = dict(self.conditional)
            with self._alone():
                for assigned in node.Assigns:
                    self._set_to(assigned.Name.Value, self._assign(assigned, True))
                    self.conditional.pop(assigned.Name.Value, None)
                before = len(self.commands)
                self.program(values, fed)
            self._maybe_written.update(made_by(values, len(self.commands) > before))
            self.conditional = conditional
            self._ended |= name == "exec" and bool(rest) and not self._blocks

    def _cd(self, values: Sequence[Value]) -> None:
        targets = [v for v in values if not re.fullmatch(r"-[LPe@]+|--", v.text)]
        folder, self.folder = self.folder, None
        if targets and targets[0].known and targets[0].text != "-" and not self._blocks:
            path = os.path.normpath(os.path.join(folder or "", targets[0].text))
            self.folder = path if os.path.isabs(path) and os.path.isdir(path) else None

    def _source(self, values: Sequence[Value], line: int) -> None:
        words = " ".join(value.text for value in values)
        why = f"`source {words}` may set variables: it is not read"
        if values and values[0].text[:1] in "/~$" and ENVIRONMENTS.search(values[0].text):
            self._environment(line, why)
            return
        try:
            own = values and values[0].text in self._written
            if len(values) != 1 or not values[0].known or self._depth > 4 or own:
                raise ValueError(words)
            text = Path(self.folder or "/nowhere", values[0].text).read_text()
            statements, notes = parse(text, line)
        except (OSError, ValueError):
            self.lose(line, why)
            return
        self.notes += notes
        self._depth += 1
        times, conditional, exports = scan_assignments(statements)
        self.conditional = conditional | self.conditional
        self._times, self.exports = self._times + times, self.exports | exports
        self.run(statements)
        self._depth -= 1
        self._ended = False

    def _environment(self, line: int, why: str) -> None:
        """An environment is switched on: PATH and the like, no setting of a run."""
        self.notes.append(Note(line, "unread", why))
        for name in [name for name in self.variables if ACTIVATION_VARIABLES.fullmatch(name)]:
            self.unknown(name, line, "an environment is switched on")

    def _set(self, words: Sequence[str]) -> None:
        """`set -a` exports what is set from then on; other arguments are not followed."""
        options = [word for word in words if word[:1] in ("-", "+")]
        on = any(word[0] == "-" for word in options)
        if "allexport" in words or any("a" in word for word in options):
            self.exports_all = None if self._blocks or len(words) > 2 else on
        if "--" in words or any(w[:1] not in ("-", "+") and w not in SHELL_OPTIONS for w in words):
            self.arguments = None

    def program(self, values: Sequence[Value], fed: str = "") -> None:
        """Take `swift`, or what runs it; another program is of no use here."""
        inner = unwrapped([value for value in values if not value.vanishes])
        if inner is None:
            if why := not_read(values, fed):
                self.notes.append(Note(values[0].line, "unread", why))
            return
        names = {*self.variables, *self.conditional} if not inner.clears else set()
        seen = {name: self.get(name) for name in names} | inner.variables
        seen = {
            n: v for n, v in seen.items() if v.exported is not False and v.items and not v.array
        }
        lost = self.lost is not None
        if inner.hides:
            lost, seen = True, dict(inner.variables)
        if base(inner.words[0]) in SHELLS:
            self._another_shell(inner.words, seen)
            return
        at = next(i for i, value in enumerate(values) if value is inner.words[0])
        texts = {name: variable.text for name, variable in seen.items() if variable.exported}
        environment = {name: text for name, text in texts.items() if text is not None}
        unknown, line = seen.keys() - environment.keys(), inner.words[0].line
        notes = [note for name in sorted(unknown) for note in notes_of(seen[name].items)]
        self.commands.append(
            Command(
                words=list(values[at:]),  # with those that vanish
                written=frozenset(self._written),
                maybe_written=frozenset(self._maybe_written),
                environment=environment,
                line=line,
                notes=[replace(n, kind="needed") if n.kind == "unset" else n for n in notes],
                unknown=frozenset(unknown),
                lost=lost,
                folder=Path(self.folder) if self.folder and not inner.moves else None,
                launcher=inner.launcher,
                launched=(inner.processes, inner.nodes),
            )
        )
        if blocks := [block for block in self._blocks if block[0]]:
            what, begin = blocks[-1]
            why = f"the command in the {what} of line {begin} is read once, as if it ran; {BY_RUN}"
            self.notes.append(Note(line, "conditional", why))
        for name, variable in self.variables.items():
            if FOR_SWIFT.fullmatch(name) and variable.line and variable.items:
                sees = name in seen or name in self.used
                key = (name, variable.line)
                self._unseen[key] = self._unseen.get(key, True) and not sees

    def _another_shell(self, words: Sequence[Value], seen: Mapping[str, Variable]) -> None:
        """`bash FILE ARGUMENTS` or `bash -c TEXT NAME ARGUMENTS`: the commands in it."""
        who, *rest = words
        why, inside = f"`{' '.join(word.text for word in words[:3])[:80]}` is not read", False
        while rest and rest[0].known and rest[0].text[:1] in ("-", "+"):
            inside |= "c" in rest[0].text and not rest[0].text.startswith("--")
            del rest[0]
        try:
            if not rest or self._depth > 4:
                raise ValueError(BY_ITSELF)
            if not all(word.known for word in rest):
                raise ValueError("its arguments are not known")
            file = Path(self.folder or "/nowhere", rest[0].text)
            if not inside and rest[0].text in self._written:
                raise ValueError("the script writes it itself")
            if not inside and os.path.realpath(file) == os.path.realpath(self.script):
                raise ValueError(f"the script runs itself; {BY_RUN}")
            name, *arguments = [value.text for value in rest[inside:]] or [who.text]
            other = Script({}, arguments, name)
            other.variables, other.folder, other.lost = dict(seen), self.folder, self.lost
            other._depth = self._depth + 1
            text = rest[0].text if inside else file.read_text()
            other.read(text)
        except OSError as error:
            self.notes.append(Note(who.line, "unread", f"{why}: {error.strerror}"))
            return
        except ValueError as error:
            self.notes.append(Note(who.line, "unread", f"{why}: {error}"))
            return
        for command in other.commands:
            if not inside and not command.file:
                command.file, command.text = file, text
                command.notes += other.notes
            elif inside:  # its words stand nowhere in this text
                command.line = who.line
                command.words = [replace(w, line=who.line, span=None) for w in command.words]
        self.notes += [replace(note, line=who.line) for note in other.notes if inside]
        self.commands += other.commands


def _bodies(node: Node) -> Iterator[Sequence[Node]]:
    """Yield the commands of a branch or loop with its conditions, except the condition of `if`."""
    yield from (node.Then, node.Do, *(item.Stmts for item in node.Items))
    yield node.Cond if node.Type == "WhileClause" else ()
    if node.Else:
        yield node.Else.Cond
        yield from _bodies(node.Else)
