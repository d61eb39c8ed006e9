"""The part of bash that recipes are written in, read without running anything.

export MAX_PIXELS=${MAX_PIXELS:-401408}
NPROC_PER_NODE=4 nohup \
swift rlhf --model "$MODEL" "$@"        -> Command(words swift, rlhf, --model, ...; line 2)

GPUS=$(seq -s, 0 $((NPROC_PER_NODE - 1)))  -> 0,1,2,3

Both branches of a condition are followed, and what they disagree on is not known afterwards, like
the output of other programs and most arithmetic: nothing is guessed. What a command would find that
was not read is in its notes, with the line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

from swift_vlrft.recipe.shell.builtins import RUN, SUCCEEDS, asks, assign, builtin, lose, unknown
from swift_vlrft.recipe.shell.expand import changes, expand, joined
from swift_vlrft.recipe.shell.grammar import (
    Case,
    Chain,
    Function,
    Group,
    If,
    Loop,
    Node,
    Parser,
    Pipe,
    Simple,
    Test,
)
from swift_vlrft.recipe.shell.programs import external, not_exported
from swift_vlrft.recipe.shell.reader import Command
from swift_vlrft.recipe.shell.state import State, Value, Variable, merged
from swift_vlrft.recipe.shell.words import Note

DEPTH = 20
STEPS = 5_000


class _TooLong(Exception):
    """Loops in loops, or functions that call each other, beyond what is followed."""


class Shell:
    """Reads a script from top to bottom; ``commands`` are the `swift` commands in it, ``others``
    the words of all that it runs besides.

    ``script`` is what ``$0`` stands for, ``folder`` where bash would be started.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        arguments: Sequence[str] = (),
        substitutions: Mapping[str, Callable[[], str]] | None = None,
        script: str | None = None,
        folder: str | None = None,
    ) -> None:
        variables = {name: Variable(value, True) for name, value in environment.items()}
        given = tuple(Value(text, 1) for text in arguments)
        self.state = State(variables, given, folder or os.getcwd())
        self.substitutions: Mapping[str, Callable[[], str]] = substitutions or {}
        self.script = script
        self.notes: list[Note] = []
        self.commands: list[Command] = []
        self.others: list[tuple[str, ...]] = []
        self.used: set[str] = set()
        self.asked: set[str] = set()
        self.written: dict[str, str | None] = {}
        self.inside = 0
        self.running: list[Function] = []
        self.depth = 0
        self.blocks: list[tuple[str, int]] = []
        self._leaves: list[list[State]] = [[]]
        self._returns: list[list[State]] = [[]]
        self.unseen: dict[tuple[str, int], bool] = {}
        self.quiet = 0
        self._steps = 0

    def read(self, text: str) -> None:
        """A whole script; its notes are then in the order of its lines."""
        text, places = self._cleaned(text)
        parser = Parser(text, 1, places)
        nodes = parser.commands()
        self.notes += parser.notes
        self._missing_backslashes(nodes, text.split("\n"))
        try:
            self.run(nodes)
            if not self.commands:
                self._uncalled()
        except _TooLong as error:
            text = "it takes too many steps to follow the script: nothing below was read"
            self.notes.append(Note(error.args[0], "unread", text))
        not_exported(self)
        self.notes = sorted(dict.fromkeys(self.notes), key=lambda note: note.line)

    def _cleaned(self, text: str) -> tuple[str, list[int]]:
        """Without a byte order mark and carriage returns, and where each character stood."""
        places = list(range(len(text) + 1))
        if text.startswith("\ufeff"):
            mark = "the file begins with a byte order mark, which bash takes for a part of line 1. "
            remedy = "Take it away: sed -i '1s/^\\xef\\xbb\\xbf//' FILE"
            self.notes.append(Note(1, "syntax", mark + remedy))
            text, places = text[1:], places[1:]
        if "\r" in text:
            self.notes.append(
                Note(
                    text[: text.index("\r")].count("\n") + 1,
                    "continuation",
                    "the line ends in a carriage return (Windows), which bash takes for a part of "
                    "it. Convert the file: sed -i 's/\\r$//' FILE",
                )
            )
            text = re.sub("\r(?!\n)", "\n", text)
            kept = [i for i, character in enumerate(text) if character != "\r"]
            text, places = text.replace("\r", ""), [*(places[i] for i in kept), places[-1]]
        return text, places

    def _missing_backslashes(self, nodes: Sequence[Node], lines: Sequence[str]) -> None:
        """A line below `swift ...` that stands as if it belonged to it."""
        for node, below in zip(nodes, nodes[1:], strict=False):
            simple = node.first if isinstance(node, Chain) else node
            if not isinstance(simple, Simple) or not simple.ends_with_line:
                continue
            if not any(word.plain == "swift" for word in simple.words):
                continue
            if below.line != simple.last_line + 1:
                continue
            here, above = lines[below.line - 1], lines[simple.line - 1]
            if len(here) - len(here.lstrip()) <= len(above) - len(above.lstrip()):
                continue
            if not here.lstrip().startswith("-"):  # that one is said in any case
                self.notes.append(
                    Note(
                        below.line,
                        "continuation",
                        f"no backslash ends line {simple.last_line}, so bash takes "
                        f"`{here.strip()[:60]}` for a command of its own: it and all below it are "
                        "lost",
                    )
                )

    def note(self, note: Note) -> None:
        if not self.quiet:
            self.notes.append(note)

    def run(self, nodes: Iterable[Node]) -> bool | None:
        """Commands one after the other. The status: True where it is success for certain."""
        status: bool | None = True
        for node in nodes:
            if self.state.alive:
                status = self._execute(node)
        return status

    def run_text(self, text: str, line: int) -> None:
        """The text of `eval` or of another file, as if it stood in this line."""
        parser = Parser(text, line)
        nodes = parser.commands()
        for note in parser.notes:
            self.note(note)
        if any(note.kind == "syntax" for note in parser.notes):
            lose(self, Note(line, "unread", "a text with such a mistake was not read"))
            return
        if self.depth > DEPTH:
            return
        self.depth += 1
        self._returns.append([])
        self.run(nodes)
        self._join(self._returns.pop(), "file", line)
        self.depth -= 1

    def run_alone(self, nodes: Sequence[Node]) -> None:
        """In a process of its own: nothing that is set there comes back."""
        saved = self.state, self._leaves, self._returns
        self.state, self._leaves, self._returns = self.state.copy(), [[]], [[]]
        self.run(nodes)
        self.state, self._leaves, self._returns = saved

    def _execute(self, node: Node) -> bool | None:
        self._steps += 1
        if self._steps > STEPS:
            raise _TooLong(node.line)
        match node:
            case Simple():
                return self._simple(node)
            case Chain():
                return self._chain(node)
            case Pipe():
                for part in node.parts:
                    self.run_alone([part])
            case Group() if node.alone:
                self.run_alone(node.body)
            case Group():
                return self.run(node.body)
            case If():
                self._if(node)
            case Case():
                self._case(node)
            case Loop():
                self._loop(node)
            case Function():
                self.state.functions[node.name] = (node,)
                return True
            case Test():
                for word in node.words:
                    expand(self, word)
                asks(self, node.words)
                changes(self, node.text, node.line)
            case _:
                assert_never(node)
        return None

    def _join(self, others: Iterable[State], where: str, line: int) -> None:
        """Go on from here or from any of ``others``."""
        found = merged([self.state, *others], where, line)
        if found is None:
            self.state.alive = False
        else:
            self.state = found

    def _chain(self, node: Chain) -> bool | None:
        if node.background:
            self.run_alone([replace(node, background=False)])
            return True
        status = self._execute(node.first)
        status = (not status if status is not None else None) if node.negated else status
        for sign, then in node.rest:
            runs = status if sign == "&&" or status is None else not status
            if runs is False or not self.state.alive:
                continue
            if runs:
                status = self._execute(then)
                continue
            before = self.state
            self.state = before.copy()
            self._execute(then)
            self._join([before], f"`{sign}`", node.line)
            status = None
        return status

    @contextmanager
    def _block(self, kind: str, line: int) -> Iterator[None]:
        self.blocks.append((kind, line))
        yield
        self.blocks.pop()

    def _if(self, node: If) -> None:
        ends = []
        for condition, _ in node.arms[:1]:  # it runs in any case
            self.run(condition)
        with self._block("if", node.line):
            for place, (condition, body) in enumerate(node.arms):
                self.run(condition if place else [])
                before = self.state
                self.state = before.copy()
                self.run(body)
                ends.append(self.state)
                self.state = before
            self.run(node.otherwise)
        self._join(ends, "`if`", node.line)

    def _case(self, node: Case) -> None:
        expand(self, node.word)
        asks(self, [node.word])
        before, ends = self.state, list[State]()
        falls: State | None = None
        with self._block("case", node.line):
            for _, goes_on, body in node.arms:
                self.state = before.copy()
                if falls is not None:
                    self._join([falls], "`case`", node.line)
                self.run(body)
                falls = self.state if goes_on else None
                ends.append(self.state)
        self.state = before
        if any(matches for matches, _, _ in node.arms):
            self.state = replace(before, alive=False)
        self._join(ends, "`case`", node.line)

    def _loop(self, node: Loop) -> None:
        for word in node.words:
            expand(self, word)
        changes(self, node.text, node.line)
        before = self.state
        rounds = [True, False] if self.quiet else [True, True, False]
        with self._block(node.kind, node.line):
            for quiet in rounds:  # until what a round changes is not known at the start of the next
                entry = self.state
                self.quiet += quiet
                self.state = entry.copy()
                self._leaves.append([])
                if node.name:
                    unknown(self, node.name, node.line, node.kind)
                self.run(node.condition)
                if node.kind in ("while", "until"):
                    before = self.state.copy()
                self.run(node.body)
                self._join([*self._leaves.pop(), entry], f"`{node.kind}`", node.line)
                self.quiet -= quiet
        self._join([before], f"`{node.kind}`", node.line)

    def _uncalled(self) -> None:
        """Where nothing else runs `swift`, the functions that nothing calls."""
        self.state.alive = True
        defined = [f for choices in self.state.functions.values() for f in choices if f]
        for function in defined:
            with self._block("function", function.line):
                saved, self.state = self.state, self.state.copy()
                self.state.arguments = None
                self._returns.append([])
                self.inside += 1
                self.run([function.body])
                self.inside -= 1
                self._returns.pop()
                self.state = saved

    def _call(self, values: Sequence[Value]) -> None:
        """Whichever function the name stands for."""
        before, ends = self.state, list[State]()
        for function in before.functions[values[0].text]:
            self.state = before.copy()
            if function is not None:
                self._run_function(function, values)
            ends.append(self.state)
        self.state = ends.pop()
        self._join(ends, "function", values[0].line)

    def _run_function(self, function: Function, values: Sequence[Value]) -> None:
        line = values[0].line
        if function in self.running or self.depth > DEPTH:
            lose(self, Note(line, "unread", f"{function.name} calls itself; it was not read"))
            return
        arguments = self.state.arguments
        self.state.arguments = _arguments(values[1:])
        self.depth += 1
        outer, self.state.locals = self.state.locals, {}
        self.inside += 1
        self.running.append(function)
        self._returns.append([])
        blocks, self.blocks = self.blocks, []
        leaves, self._leaves = self._leaves, [[]]
        self.run([function.body])
        self._join(self._returns.pop(), "function", function.line)
        self.blocks, self._leaves = blocks, leaves
        self.inside -= 1
        self.running.pop()
        for name, before in self.state.locals.items():
            self.state.unset(name)
            if before is not None:
                self.state.variables[name] = before
        self.state.locals = outer
        self.state.arguments = arguments
        self.depth -= 1

    def _simple(self, node: Simple) -> bool | None:
        values = [value for word in node.words for value in expand(self, word)]
        for word in node.redirected:
            for target in expand(self, word):
                fed = joined(self, node.fed) if node.fed and len(values) == 1 else None
                known = fed and fed.known and values[0].text == "cat" and not node.appends
                self.written[target.text] = fed.text if fed and known else None
        given = [value for value in values if not value.vanishes]
        if not given:
            runs = False
            for word in node.assigned:
                if (match := word.assigns) is not None:
                    assign(self, word, match)
                    runs |= any(part.kind == "run" for part in word.parts)
            return None if runs or node.words else True
        first = given[0]
        if first.text.startswith("-") and first.known and not values[0].vanishes:
            self._orphan(first)
            return None
        if first.known and first.text in self.state.functions and not node.assigned:
            self._call(given)
            return None
        saved = self.state
        overlay = dict[str, Variable]()
        if node.assigned:
            self.state = saved.copy()
            for word in node.assigned:
                if (match := word.assigns) is not None:
                    overlay[match[1]] = replace(assign(self, word, match), exported=True)
                    self.state.variables[match[1]] = overlay[match[1]]
        before = len(self.commands)
        status = self._command(node, given, values)
        if len(self.commands) == before and not self.quiet:
            self.others.append(tuple(value.text for value in given))
        if node.assigned:
            self._take_back(saved, overlay)
        return status

    def _take_back(self, saved: State, overlay: Mapping[str, Variable]) -> None:
        """What stands in front of one command holds for it alone."""
        for name, variable in overlay.items():
            if self.state.variables.get(name) is variable:
                self.state.unset(name)
                self.state.removed = saved.removed
                if name in saved.variables:
                    self.state.variables[name] = saved.variables[name]

    def _command(self, node: Simple, given: list[Value], values: list[Value]) -> bool | None:
        first = given[0]
        name = first.text if first.known else ""
        if name in ("command", "builtin", "exec") and len(given) > 1:
            plain = [value for value in given[1:] if not value.text.startswith("-")]
            if plain and plain[0].text in RUN:
                given, name = plain, plain[0].text
        if name in ("exit", "return", "break", "continue"):
            self._leave(name)
            return None
        if name in self.state.functions:
            self._call(given)
            return None
        if name:
            words = node.words if given[0] is first else node.words[1:]
            if builtin(self, name, words, given):
                return True if SUCCEEDS.fullmatch(name) else None
        external(self, node, values)
        if name == "exec" and len(given) > 1:
            self.state.alive = False
        return None

    def _leave(self, name: str) -> None:
        if name == "return":
            self._returns[-1].append(self.state.copy())
        elif name in ("break", "continue"):
            self._leaves[-1].append(self.state.copy())
        self.state.alive = False

    def _orphan(self, word: Value) -> None:
        self.note(
            Note(
                word.line,
                "continuation",
                f"{word.text} stands alone: no backslash ends the line before it (or a "
                "comment stands between), so bash takes it for a command, and this flag and all "
                "below it are lost",
            )
        )


def _arguments(values: Sequence[Value]) -> tuple[Value, ...] | None:
    """What `$1` and so on are; None where a word may be several."""
    return tuple(values) if all(v.known or v.may == frozenset() for v in values) else None
