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
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from swift_vlrft.recipe.shell.builtins import DECLARES, RUN, SUCCEEDS, assign, builtin
from swift_vlrft.recipe.shell.expand import Expander
from swift_vlrft.recipe.shell.parser import Parser
from swift_vlrft.recipe.shell.state import NOTHING, UNSET, Assigned, State, Value, Variable, merged
from swift_vlrft.recipe.shell.words import (
    ASSIGNMENT,
    Branch,
    Chain,
    Function,
    Group,
    Loop,
    Node,
    Note,
    Simple,
    Span,
    Word,
)
from swift_vlrft.recipe.shell.wrappers import SHELLS, TEXT, Unwrapped, base, not_read, unwrapped

FOR_SWIFT = re.compile(
    r"NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_(?:ADDR|PORT)|CUDA_VISIBLE_DEVICES|USE_HF|HF_\w+"
    r"|MODELSCOPE_CACHE|PYTORCH_\w*ALLOC_CONF|MAX_PIXELS|MIN_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|ROOT_IMAGE_DIR|VLRFT_\w+"
)
"""Variables that are of use only in the environment of `swift`."""
DEPTH = 20
STEPS = 5_000


@dataclass(slots=True)
class Command:
    """A `swift` command with what it finds in its environment, from `swift` on.

    ``unknown``: variables that may be there with a value that was not read; ``lost``: any other
    may, too. ``folder``: where it runs, None if that is not known. ``start``: the offset of the
    first assignment or wrapper in front of it.
    """

    words: list[Value]
    environment: dict[str, str]
    line: int
    unknown: frozenset[str] = frozenset()
    lost: bool = False
    folder: str | None = None
    assigned: dict[str, Assigned] = field(default_factory=dict)
    span: Span | None = None
    start: int | None = None
    launcher: str = ""
    processes: str = ""
    nodes: str = ""
    notes: list[Note] = field(default_factory=list)
    written: dict[str, str | None] = field(default_factory=dict)
    """Files that the script writes before, with their text where that is known."""


class _TooLong(Exception):
    """Loops in loops, or functions that call each other, beyond what is followed."""


class Shell(Expander):
    """Reads a script from top to bottom; ``commands`` are the `swift` commands in it, ``others``
    the words of all that it runs besides.

    ``script`` is what ``$0`` stands for, ``folder`` where bash would be started. ``quiet``: the
    same commands are read once more, without a word.
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
        self.state = State(variables, given, folder or os.getcwd())
        self.substitutions = substitutions or {}
        self.script = script
        self.notes: list[Note] = []
        self.commands: list[Command] = []
        self.others: list[tuple[str, ...]] = []
        self.used, self.tested, self.references = set[str](), set[str](), set[str]()
        self.inside = self.quiet = 0
        self._written: dict[str, str | None] = {}
        self._running: list[Function | str] = []
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
            self.notes.append(Note(1, "syntax", mark + remedy))
        if "\r" in text:
            why = "the line ends in a carriage return (Windows), which bash takes for a part of "
            why += "it. Convert the file: sed -i 's/\\r$//' FILE"
            line = text[: text.index("\r")].count("\n") + 1
            self.notes.append(Note(line, "continuation", why))
        parser = Parser(text)
        nodes = parser.script()
        self.notes += parser.notes
        self._missing_backslashes(nodes, text.split("\n"))
        try:
            self.run(nodes)
            for function in self.state.functions.values() if not self.commands else ():
                if function is not None:
                    why = f"the function {function.name} is not called here: it was not read"
                    self.notes.append(Note(function.line, "unread", why))
        except (_TooLong, RecursionError) as error:
            line = error.args[0] if isinstance(error, _TooLong) else 1
            text = "it takes too many steps to follow the script: nothing below was read"
            self.notes.append(Note(line, "unread", text))
        for (name, line), unseen in self._unseen.items():
            why = f"{name} is set for this script alone, and `swift` does not see it: write "
            why += f"`export {name}=...`, or end the line with a backslash"
            self.notes += [Note(line, "not-exported", why)] * unseen
        self.notes = sorted(dict.fromkeys(self.notes), key=lambda note: note.line)

    def _missing_backslashes(self, nodes: Sequence[Node], lines: Sequence[str]) -> None:
        """A line below `swift ...` that looks as if it belonged to it."""
        for node, below in zip(nodes, nodes[1:], strict=False):
            simple = node.first if isinstance(node, Chain) else node
            if not isinstance(simple, Simple) or not simple.ends_with_line:
                continue
            here, above = lines[below.line - 1], lines[simple.line - 1]
            deeper = len(here) - len(here.lstrip()) > len(above) - len(above.lstrip())
            follows = deeper and below.line == simple.last_line + 1
            orphan = here.lstrip().startswith("-")  # that one is said in any case
            if follows and not orphan and any(word.text == "swift" for word in simple.words):
                why = f"no backslash ends line {simple.last_line}, so bash takes "
                why += f"`{here.strip()[:60]}` for a command of its own: it and all below it are "
                self.notes.append(Note(below.line, "continuation", why + "lost"))

    def note(self, note: Note) -> None:
        if not self.quiet:
            self.notes.append(note)

    def lose(self, note: Note) -> None:
        """Something that was not read may have set anything."""
        self.note(note)
        self.state.lose(note)

    # Commands in commands ----------------------------------------------------------------------

    def run(self, nodes: Iterable[Node]) -> bool | None:
        """Commands one after the other. The status: True if it is success for certain."""
        status: bool | None = True
        for node in nodes:
            if not self.state.alive:
                break
            self._steps += 1
            if self._steps > STEPS:
                raise _TooLong(node.line)
            status = None
            match node:
                case Simple():
                    status = self._simple(node)
                case Chain():
                    status = self._chain(node)
                case Group() if node.alone:
                    self.run_alone(node.body)
                case Group():
                    status = self.run(node.body)
                case Branch():
                    self._branch(node)
                case Loop():
                    self._loop(node)
                case Function():
                    self.state.functions[node.name] = node
                    status = True
        return status

    def run_text(self, text: str, line: int) -> None:
        """The text of `eval` or of another file, as if it stood in this line."""
        parser = Parser(text, line)
        nodes = parser.script()
        for note in parser.notes:
            self.note(note)
        if any(note.kind == "syntax" for note in parser.notes):
            self.lose(Note(line, "unread", "a text with such a mistake was not read"))
        elif len(self._running) > DEPTH:
            self.lose(Note(line, "unread", "texts in texts: this one was not read"))
        else:
            with self._returning("text", "file", line):
                self.run(nodes)

    def run_alone(self, nodes: Iterable[Node]) -> None:
        """Run in a subshell: nothing that is set there comes back."""
        saved = self.state, self._leaves, self._returns
        self.state, self._leaves, self._returns = self.state.copy(), [[]], [[]]
        self.run(nodes)
        self.state, self._leaves, self._returns = saved

    @contextmanager
    def _returning(self, what: Function | str, where: str, line: int) -> Iterator[None]:
        """Where `return` comes back from."""
        self._running.append(what)
        self._returns.append([])
        yield
        self._join(self._returns.pop(), where, line)
        self._running.pop()

    @contextmanager
    def _block(self, kind: str, line: int) -> Iterator[None]:
        self._blocks.append((kind, line))
        yield
        self._blocks.pop()

    def _join(self, others: Iterable[State], where: str, line: int) -> None:
        """Go on from here or from any of ``others``."""
        found = merged([self.state, *others], where, line)
        self.state = found or replace(self.state, alive=False)

    def _chain(self, node: Chain) -> bool | None:
        if node.background:
            self.run_alone([replace(node, background=False)])
            return True
        status = self.run([node.first])
        status = (not status if status is not None else None) if node.negated else status
        for sign, then in node.rest:
            if not self.state.alive:
                break
            if status is None:
                before = self.state
                self.state = before.copy()
                self.run([then])
                self._join([before], f"`{sign}`", node.line)
            elif status == (sign == "&&"):
                status = self.run([then])
        return status

    def _branch(self, node: Branch) -> None:
        ends = list[State]()
        self.run(node.arms[0][0] if node.arms else [])  # it runs in any case
        with self._block(node.kind, node.line):
            for at, (condition, body) in enumerate(node.arms):
                self.run(condition if at else [])
                before = self.state
                self.state = before.copy()
                self.run(body)
                ends.append(self.state)
                self.state = before
        if node.complete:
            self.state = replace(self.state, alive=False)
        self._join(ends, f"`{node.kind}`", node.line)

    def _loop(self, node: Loop) -> None:
        for word in node.words:
            self.expand(word)
        before = self.state
        rounds = [True, False] if self.quiet else [True, True, False]
        with self._block(node.kind, node.line):
            for quiet in rounds:  # until what a round changes is not known at the start of the next
                entry = self.state
                self.quiet += quiet
                self.state = entry.copy()
                self._leaves.append([])
                if node.name:
                    self.unknown(node.name, node.line, node.kind)
                self.run(node.condition)
                if node.condition:
                    before = self.state.copy()
                self.run(node.body)
                self._join([*self._leaves.pop(), entry], f"`{node.kind}`", node.line)
                self.quiet -= quiet
        self._join([before], f"`{node.kind}`", node.line)

    def _call(self, values: Sequence[Value]) -> None:
        name, line = values[0].text, values[0].line
        function = self.state.functions[name]
        if function is None or function in self._running or len(self._running) > DEPTH:
            why = "calls itself" if function else "is one function or another"
            self.lose(Note(line, "unread", f"{name} {why}; it was not read"))
            return
        arguments, outer = self.state.arguments, self.state.locals
        known = all(v.known or v.may == NOTHING for v in values)
        self.state.arguments = tuple(values[1:]) if known else None
        self.state.locals = {}
        blocks, self._blocks = self._blocks, []
        leaves, self._leaves = self._leaves, [[]]
        self.inside += 1
        with self._returning(function, "function", function.line):
            self.run([function.body])
        self.inside -= 1
        self._blocks, self._leaves = blocks, leaves
        self.state.variables |= self.state.locals
        self.state.arguments, self.state.locals = arguments, outer

    # One command -------------------------------------------------------------------------------

    def _simple(self, node: Simple) -> bool | None:
        values = [value for word in node.words for value in self.expand(word)]
        fed = self.joined(node.fed) if node.fed else None
        shown = fed.text if fed and fed.known and [v.text for v in values] == ["cat"] else None
        targets = [target.text for word in node.redirected for target in self.expand(word)]
        self._written |= dict.fromkeys(targets, None if node.appends else shown)
        given = [value for value in values if not value.vanishes]
        if not given:
            for word in node.assigned:
                self._assigned(word)
            runs = any(part.kind == "run" for word in node.assigned for part in word.parts)
            return None if runs or node.words else True
        first = given[0]
        if first.text.startswith("-") and first.known and not values[0].vanishes:
            why = f"{first.text} stands alone: no backslash ends the line before it (or a comment "
            why += "stands between), so bash takes it for a command, and this flag and all below it"
            self.note(Note(first.line, "continuation", f"{why} are lost"))
            return None
        outer, overlay = self.state.copy(), dict[str, Variable]()
        for word in node.assigned:
            overlay |= self._assigned(word, True)
        before = len(self.commands)
        status = self._command(node, given, values)
        if len(self.commands) == before and not self.quiet:
            words = [value.text for value in given]
            self.others.append((*words, *targets, fed.text if fed else ""))
        for name, variable in overlay.items():  # it holds for the one command alone
            if self.state.variables.get(name) is variable:
                self.state.variables[name] = outer.get(name)
        return status

    def _assigned(self, word: Word, exported: bool = False) -> dict[str, Variable]:
        match = ASSIGNMENT.match(word.text)
        return {match[1]: assign(self, word, match, exported)} if match else {}

    def _command(self, node: Simple, given: list[Value], values: list[Value]) -> bool | None:
        name = given[0].text if given[0].known else ""
        if name in self.state.functions:
            self._call(given)
            return None
        if name in ("command", "builtin", "exec"):
            inner = [i for i, v in enumerate(given) if i and not v.text.startswith("-")]
            if inner and given[inner[0]].text in (*RUN, *DECLARES):
                given, name = given[inner[0] :], given[inner[0]].text
        words = node.words[len(values) - len(given) :]
        if name in ("exit", "return", "break", "continue"):
            if name != "exit":
                ends = self._returns if name == "return" else self._leaves
                ends[-1].append(self.state.copy())
            self.state.alive = False
            return None
        if name and builtin(self, name, words, given):
            return True if name in SUCCEEDS else None
        self._program(node, values)
        if name == "exec" and len(given) > 1:
            self.state.alive = False
        return None

    def _program(self, node: Simple, values: list[Value]) -> None:
        """`swift`, what runs it, or another that is of no use here."""
        found = unwrapped([value for value in values if not value.vanishes])
        shows = base(values[0]) in ("cat", "tee") and not node.redirected
        if found is not None and base(found.words[0]) in SHELLS:
            self._another_shell(found)
        elif found is not None:
            if not self.quiet:
                self._swift(node, values, found)
        elif why := not_read(values, node.fed.text if node.fed and not shows else ""):
            self.note(Note(values[0].line, "unread", why))

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
            self.note(Note(who.line, "unread", f"{why} read"))
            return
        saved, script = self.state, self.script
        self.state = self._changed(found)
        self.state.variables = dict(self.state.environment())
        self.state.arguments, self.state.functions = tuple(arguments[1:]), {}
        self.script = arguments[0].text if arguments else None
        self.run_text(text.text, who.line)
        self.state, self.script = saved, script

    def _changed(self, found: Unwrapped) -> State:
        """A copy of the state, with what wrappers do to the environment."""
        state = self.state.copy()
        if found.cleared:
            state.variables = {k: v for k, v in state.variables.items() if v.exported is False}
        if found.hidden:
            why = "which variables are handed on is not known"
            state.lose(Note(found.words[0].line, "unread", why))
        state.variables |= dict.fromkeys(found.unset, UNSET)
        for name, (value, place) in found.set.items():
            state.variables[name] = Variable((value,), exported=True, place=place)
        return state

    def _swift(self, node: Simple, values: list[Value], found: Unwrapped) -> None:
        at = [i for i, value in enumerate(values) if value is found.words[0]]
        words = values[at[0] :] if at else found.words  # with those that vanish
        state = self._changed(found)
        seen = state.environment()
        environment = {k: v.text for k, v in seen.items() if v.exported and v.text is not None}
        unknown = frozenset(seen.keys() - environment.keys())
        line, first = words[0].line, words[0].span
        begins = [word.span for word in [*node.assigned, *node.words] if word.span]
        last = begins[-1].end if begins else 0
        notes = [n for name in sorted(unknown) for item in seen[name].items for n in item.notes]
        command = Command(
            words,
            environment,
            line,
            unknown,
            state.lost is not None,
            state.folder,
            {k: v.place for k, v in seen.items() if v.place and k in environment},
            Span(first.start, last, False) if first else None,
            begins[0].start if begins else None,
            found.launcher,
            found.processes,
            found.nodes,
            [replace(n, kind="needed") if n.kind == "unset" else n for n in notes],
            dict(self._written),
        )
        if self._blocks:
            kind, begin = self._blocks[-1]
            text = f"inside the `{kind}` of line {begin}: read as if it ran"
            self.note(Note(line, "conditional", text))
        for name, variable in state.variables.items():
            if FOR_SWIFT.fullmatch(name) and variable.place is not None:
                key = (name, variable.place.line)
                sees = variable.exported is not False or name in self.used
                self._unseen[key] = self._unseen.get(key, True) and not sees
        self.commands.append(command)
