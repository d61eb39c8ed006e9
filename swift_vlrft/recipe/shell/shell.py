"""The part of bash that recipes are written in, followed without running anything: one evaluator.

export MAX_PIXELS=${MAX_PIXELS:-401408}
NPROC_PER_NODE=4 nohup \
swift rlhf --model "$MODEL" "$@"        -> Command(words swift, rlhf, --model, ...; line 2)

Both branches of a condition are followed, and what they disagree on is not known afterwards, like
the output of other programs and most arithmetic: nothing is guessed. What a command would find that
was not read is in its notes, with the line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from swift_vlrft.recipe.shell.builtins import (
    DECLARES,
    RUN,
    SUCCEEDS,
    assign,
    builtin,
    declare,
    parameters,
)
from swift_vlrft.recipe.shell.expand import ENDLESS, IN_DOCUMENT, MOST_TEXT, Expander, TooLong
from swift_vlrft.recipe.shell.state import NOTHING, Assigned, State, Value, Variable, merged
from swift_vlrft.recipe.shell.tree import Node, Note, Span, parse
from swift_vlrft.recipe.shell.wrappers import SHELLS, TEXT, Unwrapped, base, not_read, unwrapped

FOR_SWIFT = re.compile(
    r"NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_(?:ADDR|PORT)|CUDA_VISIBLE_DEVICES|USE_HF|HF_\w+"
    r"|MODELSCOPE_CACHE|PYTORCH_\w*ALLOC_CONF|MAX_PIXELS|MIN_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|ROOT_IMAGE_DIR|VLRFT_\w+"
)
"""Variables that are of use only in the environment of `swift`."""
DEPTH = 20
STEPS = 5_000
STEPPED = "it takes too many steps to follow the script"


@dataclass(kw_only=True)
class Command:
    """A `swift` command, with the environment that it sees."""

    environment: dict[str, str]
    line: int = 1
    notes: list[Note] = field(default_factory=list)
    span: Span | None = None
    """`swift rlhf ...` to its last argument."""
    start: int | None = None
    """Offset of the first assignment or wrapper in front of it."""
    assigned: dict[str, Assigned] = field(default_factory=dict)
    """By name, the assignment of a variable of ``environment``."""
    unknown: frozenset[str] = frozenset()
    """Variables that may be set, to an unread value."""
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
    written: dict[str, str | None] = field(default_factory=dict)
    """Files that the script writes before, with their text where that is known."""


class Shell(Expander):
    """Reads a script from top to bottom; ``commands`` are the `swift` commands in it, ``others``
    the words of all that it runs besides. ``folder`` is where bash would be started.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        arguments: Sequence[str] = (),
        substitutions: Mapping[str, Callable[[], str]] | None = None,
        script: str | None = None,
        folder: str | None = None,
    ) -> None:
        variables = {
            name: Variable((Value(value, 1),), exported=True) for name, value in environment.items()
        }
        given = tuple(Value(text, 1) for text in arguments)
        super().__init__(
            State(variables, given, folder or os.getcwd()), substitutions or {}, script
        )
        self.commands: list[Command] = []
        self.others: list[tuple[str, ...]] = []
        self._written: dict[str, str | None] = {}
        self._running: list[Node | str] = []
        self._blocks: list[tuple[str, int]] = []
        self._leaves: list[list[State]] = [[]]
        self._returns: list[list[State]] = [[]]
        self._unseen: dict[tuple[str, int], bool] = {}
        self._steps = 0

    def read(self, text: str) -> None:
        """Run a script; its notes are then in the order of its lines."""
        if text.startswith("\ufeff"):
            mark = "the file begins with a byte order mark, which bash takes for a part of line 1. "
            remedy = "Take it away: sed -i '1s/^\\xef\\xbb\\xbf//' FILE"
            self.note(1, mark + remedy, "syntax")
        if "\r" in text:
            why = "the line ends in a carriage return (Windows), which bash takes for a part of "
            why += "it. Convert the file: sed -i 's/\\r$//' FILE"
            line = text[: text.index("\r")].count("\n") + 1
            self.note(line, why, "continuation")
        statements, notes = parse(text)
        self.notes += notes
        self._missing_backslashes(statements, text.split("\n"))
        try:
            self.run(statements)
            defined = () if self.commands else self.state.functions.items()
            for name, function in ((n, one) for n, found in defined for one in found if one):
                self.note(function.line, f"the function {name} is not called here: it was not read")
        except (TooLong, RecursionError) as error:
            line, why = error.args if isinstance(error, TooLong) else (1, STEPPED)
            self.note(line, f"{why}: nothing below was read")
        for (name, line), unseen in self._unseen.items():
            why = f"{name} is set for this script alone, and `swift` does not see it: write "
            why += f"`export {name}=...`, or end the line with a backslash"
            self.notes += [Note(line, "not-exported", why)] * unseen
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
                self.note(below.line, why + "lost", "continuation")

    # Commands in commands ----------------------------------------------------------------------

    def run(self, statements: Iterable[Node]) -> bool | None:
        """Commands one after the other. The status: True if it is success for certain."""
        status: bool | None = True
        for node in statements:
            if not self.state.alive:
                break
            self._steps += 1
            if self._steps > STEPS:
                raise TooLong(node.line, STEPPED)
            if node.Background:
                with self.alone():
                    self._statement(node)
                status = True
            else:
                status = self._statement(node)
                status = not status if node.Negated and status is not None else status
        return status

    def _statement(self, node: Node) -> bool | None:
        command = node.Cmd or node
        if command.Type == "CallExpr":
            return self._simple(command, node.Redirs)
        self._redirected(node.Redirs, None)
        match command.Type:
            case "DeclClause":
                declare(self, command.Variant.Value, command.Args, node.line)
                return True
            case "BinaryCmd" if command.Op in ("&&", "||"):
                return self._chain(command)
            case "BinaryCmd":
                for part in (command.X, command.Y):
                    with self.alone():
                        self.run([part])
            case "Block":
                return self.run(command.Stmts)
            case "Subshell":
                with self.alone():
                    self.run(command.Stmts)
            case "TimeClause":
                return self.run([command.Stmt] if command.Stmt else [])
            case "CoprocClause":
                with self.alone():
                    self.run([command.Stmt])
            case "IfClause" | "CaseClause":
                self._branch(command)
            case "ForClause" | "WhileClause":
                self._loop(command)
            case "FuncDecl":
                if not command.Name:  # shfmt reads ()(ls), zsh's, in bash's language, too
                    self.note(node.line, "bash knows no function without a name", "syntax")
                    return False
                self.state.functions[command.Name.Value] = (command,)
                return True
            case "TestClause":
                self._test(command.under("Word"))
            case "ArithmCmd" | "LetClause":
                self.changes(command.text, node.line)
                self._other(["let", command.text])
        return None

    def run_text(self, text: str, line: int) -> None:
        """The text of `eval` or of another file, as if it stood in this line."""
        if (
            len(text) > MOST_TEXT // 10
        ):  # a text that doubled; parsed, it is a hundred times as large
            raise TooLong(line, ENDLESS)
        statements, notes = parse(text, line)
        self.notes += [] if self.quiet else notes
        if any(note.kind == "syntax" for note in notes):
            self.lose(line, "a text with such a mistake was not read")
        elif len(self._running) > DEPTH:
            self.lose(line, "texts in texts: this one was not read")
        else:
            with self._returning("text", "file", line):
                self.run(statements)

    @contextmanager
    def _with(self, **changes: Any) -> Iterator[None]:
        """Attributes that have other values for a while."""
        saved = {name: getattr(self, name) for name in changes}
        self.__dict__ |= changes
        try:
            yield
        finally:
            self.__dict__ |= saved

    def alone(self) -> AbstractContextManager[None]:
        """In a subshell: nothing that is set there comes back."""
        return self._with(state=self.state.copy(), _leaves=[[]], _returns=[[]])

    @contextmanager
    def _returning(self, what: Node | str, where: str, line: int) -> Iterator[None]:
        """Where `return` comes back from."""
        self._running.append(what)
        self._returns.append([])
        yield
        self._join(self._returns.pop(), where, line)
        self._running.pop()

    def _join(self, others: Iterable[State], where: str, line: int) -> None:
        """Go on from here or from any of ``others``."""
        found = merged([self.state, *others], where, line)
        self.state = found or replace(self.state, alive=False)

    def _chain(self, node: Node) -> bool | None:
        status = self.run([node.X])
        if status is None and self.state.alive:
            before = self.state
            self.state = before.copy()
            self.run([node.Y])
            self._join([before], f"`{node.Op}`", node.line)
        elif self.state.alive and status == (node.Op == "&&"):
            status = self.run([node.Y])
        return status

    def _test(self, words: Iterable[Node]) -> None:
        """``[[ ... ]]``, or the word of a `case`: what is tested may be missing."""
        words = list(words)
        self._other(["test", *(value.text for word in words for value in self.expand(word))])
        self.tested.update(parameters(words))

    def _branch(self, node: Node) -> None:
        arms: list[tuple[Sequence[Node], Sequence[Node]]] = []
        kind, line, complete, ends = node.Type[:-6].lower(), node.line, False, list[State]()
        if node.Word:
            self._test([node.Word])
            for item in node.Items:
                arms.append(((), item.Stmts))
                complete |= any(pattern.text == "*" for pattern in item.Patterns)
        while node and not node.Word:
            arms.append((node.Cond, node.Then))
            complete, node = not node.Cond, node.Else
        self.run(arms[0][0] if arms else [])  # it runs in any case
        with self._with(_blocks=[*self._blocks, (kind, line)]):
            for at, (condition, body) in enumerate(arms):
                self.run(condition if at else [])
                before = self.state
                self.state = before.copy()
                self.run(body)
                ends.append(self.state)
                self.state = before
        if complete:
            self.state = replace(self.state, alive=False)
        self._join(ends, f"`{kind}`", line)
        if node and any(item.Op != ";;" for item in node.Items):
            self.lose(line, "a `case` with `;&` is not followed")

    def _loop(self, node: Node) -> None:
        head = node.Loop or node
        kind = "select" if node.Select else "until" if node.Until else node.Type[:-6].lower()
        for word in head.Items:
            self.expand(word)
        before = self.state
        rounds = [True, False] if self.quiet else [True, True, False]
        for quiet in rounds:  # until what a round changes is not known at the start of the next
            with self._with(_blocks=[*self._blocks, (kind, node.line)], quiet=self.quiet + quiet):
                entry = self.state
                self.state = entry.copy()
                self._leaves.append([])
                if head.Name:
                    self.unknown(head.Name.Value, node.line, kind)
                elif node.Loop:
                    self.changes(head.text, node.line)
                self.run(node.Cond)
                if not head.Name:
                    before = self.state.copy()
                self.run(node.Do)
                self._join([*self._leaves.pop(), entry], f"`{kind}`", node.line)
        self._join([before], f"`{kind}`", node.line)

    def _call(self, function: Node, values: Sequence[Value]) -> None:
        name, line = values[0].text, values[0].line
        if function in self._running or len(self._running) > DEPTH:
            self.lose(line, f"{name} calls itself; it was not read")
            return
        arguments, outer = self.state.arguments, self.state.locals
        known = all(v.known or v.may == NOTHING for v in values)
        self.state.arguments = tuple(values[1:]) if known else None
        self.state.locals = {}
        with (
            self._with(_blocks=[], _leaves=[[]], inside=self.inside + 1),
            self._returning(function, "function", function.line),
        ):
            self.run([function.Body])
        self.state.variables |= self.state.locals
        self.state.arguments, self.state.locals = arguments, outer

    # One command -------------------------------------------------------------------------------

    def _redirected(self, redirections: Iterable[Node], shown: str | None) -> list[str]:
        """The files that output goes to, which then hold ``shown``."""
        written = [node for node in redirections if "<<" not in node.Op]
        targets = [target.text for node in written for target in self.expand(node.Word)]
        appends = any(">>" in node.Op for node in written)
        self._written |= dict.fromkeys(targets, None if appends else shown)
        return targets

    def _fed(self, redirections: Iterable[Node]) -> Value | None:
        """What a here-document or a here-string gives a command to read."""
        found = None
        for node in redirections:
            if node.Op == "<<<":
                found = self.joined(node.Word)
            elif node.Op in ("<<", "<<-"):
                inside = node.Hdoc or Node({"Pos": node.Pos}, "", True)
                quoted = any(part.Type != "Lit" or "\\" in part.Value for part in node.Word.Parts)
                found = self.joined(inside, quoted="\0" if quoted else IN_DOCUMENT)
                if node.Op == "<<-":
                    found = replace(found, text=re.sub(r"(?m)^\t+", "", found.text))
        return found

    def _other(self, words: Iterable[str]) -> None:
        if not self.quiet:
            self.others.append((*words,))

    def _simple(self, node: Node, redirections: Sequence[Node]) -> bool | None:
        values = [value for word in node.Args for value in self.expand(word)]
        fed = self._fed(redirections)
        shown = fed.text if fed and fed.known and [v.text for v in values] == ["cat"] else None
        targets = self._redirected(redirections, shown)
        given = [value for value in values if not value.vanishes]
        if not given:
            for assigned in node.Assigns:
                assign(self, assigned)
            runs = any(True for assigned in node.Assigns for _ in assigned.under("CmdSubst"))
            return None if runs or node.Args else True
        first = given[0]
        if first.text.startswith("-") and first.known and not values[0].vanishes:
            why = f"{first.text} stands alone: no backslash ends the line before it (or a comment "
            why += "stands between), so bash takes it for a command, and this flag and all below it"
            self.note(first.line, f"{why} are lost", "continuation")
            return None
        outer, overlay = self.state.copy(), dict[str, Variable]()
        for assigned in node.Assigns:
            overlay[assigned.Name.Value] = assign(self, assigned, True)
        before = len(self.commands)
        text = fed.text if fed else ""
        shows = base(values[0]) in ("cat", "tee") and not targets
        status = self._command(node, given, values, "" if shows else text)
        if len(self.commands) == before:
            self._other((*(value.text for value in given), *targets, text))
        for name, variable in overlay.items():  # it holds for the one command alone
            if self.state.variables.get(name) is variable:
                self.state.variables[name] = outer.get(name)
        return status

    def _command(
        self, node: Node, given: list[Value], values: list[Value], fed: str
    ) -> bool | None:
        name = given[0].text if given[0].known else ""
        if functions := self.state.functions.get(name):
            before, after = self.state, list[State]()
            for function in functions:
                self.state = before.copy()
                if function is not None:
                    self.state.functions[name] = (function,)
                    self._call(function, given)
                else:
                    del self.state.functions[name]
                    self._command(node, given, values, fed)
                after.append(self.state)
            self.state = replace(before, alive=False)
            self._join(after, f"function {name}", given[0].line)
            return None
        if name in ("command", "builtin", "exec"):
            inner = [i for i, v in enumerate(given) if i and not v.text.startswith("-")]
            if inner and given[inner[0]].text in (*RUN, *DECLARES):
                given, name = given[inner[0] :], given[inner[0]].text
        words = node.Args[len(values) - len(given) :]
        if name in ("exit", "return", "break", "continue"):
            if name != "exit":
                ends = self._returns if name == "return" else self._leaves
                ends[-1].append(self.state.copy())
            self.state.alive = False
            return None
        if name and builtin(self, name, words, given):
            return True if name in SUCCEEDS else None
        self._program(node, values, fed)
        if name == "exec" and len(given) > 1:
            self.state.alive = False
        return None

    def _program(self, node: Node, values: list[Value], fed: str) -> None:
        """`swift`, what runs it, or another that is of no use here."""
        found = unwrapped([value for value in values if not value.vanishes], self.state)
        if found is not None and base(found.words[0]) in SHELLS:
            self._another_shell(found)
        elif found is not None:
            if not self.quiet:
                self._swift(node, values, found)
        elif why := not_read(values, fed):
            self.note(values[0].line, why)

    def _another_shell(self, found: Unwrapped) -> None:
        """`bash -c "text" name arguments`."""
        who, *words = found.words
        option = Value("", who.line)
        while words and not TEXT.fullmatch(option.text) and option.text[:1] in ("", "-", "+"):
            option = words.pop(0)
        text, *arguments = words or [Value("", who.line, False)]
        if not text.known or not TEXT.fullmatch(option.text):
            why = f"`{who.text}` reads commands from a document, a pipe or a file: they were not"
            why = f"`{who.text} -c {text.text}` was not" if text.text else why
            if option.text[:1] not in ("", "-", "+"):
                why = f"`{who.text} {option.text}` runs another file: it was not"
            self.note(who.line, f"{why} read")
            return
        state = found.state
        state.variables = dict(state.environment())
        state.arguments, state.functions = tuple(arguments[1:]), {}
        with self._with(state=state, script=arguments[0].text if arguments else None):
            self.run_text(text.text, who.line)

    def _swift(self, node: Node, values: list[Value], found: Unwrapped) -> None:
        at = [i for i, value in enumerate(values) if value is found.words[0]]
        words = values[at[0] :] if at else found.words  # with those that vanish
        state, seen = found.state, found.state.environment()
        environment = {k: v.text for k, v in seen.items() if v.exported and v.text is not None}
        unknown = frozenset(seen.keys() - environment.keys())
        line, first = words[0].line, words[0].span
        begins = [word.span for word in [*node.Assigns, *node.Args] if word.span]
        notes = [n for name in sorted(unknown) for item in seen[name].items for n in item.notes]
        command = Command(
            words=words,
            written=dict(self._written),
            environment=environment,
            line=line,
            notes=[replace(n, kind="needed") if n.kind == "unset" else n for n in notes],
            span=Span(first.start, begins[-1].end, False) if first else None,
            start=begins[0].start if begins else None,
            assigned={k: v.place for k, v in seen.items() if v.place and k in environment},
            unknown=unknown,
            lost=state.lost is not None,
            folder=Path(state.folder) if state.folder else None,
            launcher=found.launcher,
            launched=(found.processes, found.nodes),
        )
        if self._blocks:
            kind, begin = self._blocks[-1]
            why = f"inside the `{kind}` of line {begin}: read as if it ran"
            self.note(line, why, "conditional")
        for name, variable in state.variables.items():
            if FOR_SWIFT.fullmatch(name) and variable.place is not None:
                key = (name, variable.place.line)
                sees = variable.exported is not False or name in self.used
                self._unseen[key] = self._unseen.get(key, True) and not sees
        self.commands.append(command)
