"""Read a script once, straight from top to bottom, without running anything.

export MAX_PIXELS=${MAX_PIXELS:-401408}
NPROC_PER_NODE=4 nohup \
swift rlhf --model "$MODEL" "$@"        -> Command(words swift, rlhf, --model, ...; line 2)

Anything else (branches, loops, functions, arrays, `source`, `eval`, `set -a`) is not read: a note
names the line, and every name in it is not known from there on. bash reads it under `--run`
(by_bash.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swift_vlrft.recipe.tree import Node, Note
from swift_vlrft.recipe.words import BY_RUN, NAME, Command, Value, Variable, Words, joined, unread
from swift_vlrft.recipe.wrappers import ENVIRONMENT, WITHIN, not_read, unwrapped

SOURCES = re.compile(r"(?m)\b(?:source|eval)\b|(?:^|[\s;&|(])\.\s")
"""What reads other commands; `--run` does not follow them."""
CHANGES = re.compile(
    r"(?m)(?:^|[\s;&|({`])(?:read|getopts|mapfile|readarray|unset|declare|typeset|local|readonly|let"
    r"|alias|shift|source|\.|eval|export(?!\s+\w+=)|pushd|popd|printf\s+-v|wait\s+-p"
    r"|set(?!(?:\s+(?:[-+][euxo]+|pipefail))*\s*(?:$|[;&|])))(?!\S)"
)
"""Commands after which any variable may have any value."""


class Script(Words):
    """``commands`` are the `swift` commands of a script."""

    def __init__(self, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
        super().__init__(environment, arguments)
        self.commands: list[Command] = []
        self.folder: Path | None = Path.cwd()
        self._functions = dict[str, Node]()
        self._ended = False

    def run(self, statements: Iterable[Node]) -> None:
        """Read statements, until the script ends."""
        for node in statements:
            if not self._ended:
                self._statement(node, node.Cmd or node)

    def _statement(self, node: Node, command: Node) -> None:
        match command.Type:
            case "CallExpr":
                self._simple(node, command)
            case "DeclClause" if command.Variant.Value == "export" and all(
                word.Name and not re.search(r"(?<!\$)\{", word.text) for word in command.Args
            ):
                # bash expands all words before it assigns the first.
                self._assign([self._assigned(w) for w in command.Args if not w.Naked], True)
                for name in (word.Name.Value for word in command.Args if word.Naked):
                    self.variables[name] = replace(self.get(name), exported=True)
            case "BinaryCmd":
                self.run([command.X])
                behind = command.Y.Cmd or command.Y
                if behind.Type == "CallExpr" and behind.Args and not CHANGES.match(behind.text):
                    ended = self._ended
                    self.run([command.Y])
                    self._ended = ended
                else:
                    self._skip(command.Y)
            case "Block":
                self.run(command.Stmts)
            case _ if command.Type != "TestClause" and command.Type:
                self._skip(node)

    def _skip(self, node: Node) -> None:
        """Leave a node unread: what it may set is not known from here on."""
        text = node.text
        if ENVIRONMENT.match(text):
            return
        why = f"`{text.splitlines()[0][:60]}` is not read"
        why += ", with its `swift` command" * bool(WITHIN.search(text))
        why += f"; {BY_RUN}" * (not SOURCES.search(text))
        moves = re.search(r"\bcd\b", text)
        names = [*NAME.findall(text), *["PWD"] * bool(moves)]
        note = self.forget(names, Note(node.line, "unread", why))
        self.notes.append(note)
        self._functions |= {n.Name.Value: n for n in node.walk() if n.Type == "FuncDecl"}
        if CHANGES.search(text):
            self.variables, self.arguments, self.folder, self.lost = {}, None, None, note
        elif moves:
            self.folder = None

    # One command -------------------------------------------------------------------------------

    def _assigned(self, node: Node) -> tuple[str, Variable]:
        """What NAME=VALUE gives a variable; arrays and NAME+=VALUE are not read."""
        name, word = node.Name.Value, node.Value
        if node.Array or node.Index or node.Append:
            value = unread(node)
            self.notes += value.notes
        else:
            value = joined(self.pieces(word.Parts if word else ()), node.line)
            value = replace(value, span=word.span if word else None)
        return name, Variable(value, self.get(name).exported)

    def _assign(self, pairs: Iterable[tuple[str, Variable]], exported: bool = False) -> None:
        for name, variable in pairs:
            self.variables[name] = replace(variable, exported=exported or variable.exported)

    def _simple(self, node: Node, command: Node) -> None:
        values = [value for word in command.Args for value in self.expand(word)]
        words = [value for value in values if not value.vanishes]
        texts = [word.text if word.known else "" for word in words]
        for inner in node.walk():
            if inner.Type == "CmdSubst" and WITHIN.search(inner.text):
                self._skip(inner)
        if not words:
            if not node.Background:
                self._assign(map(self._assigned, command.Assigns))
        elif texts[0] in ("exit", "return"):
            self._ended = True
        elif texts[0] in self._functions and not WITHIN.search(node.text):
            for function in [*self._functions.values()]:  # which may call another
                self._skip(function)
        elif texts[0] in ("cd", *self._functions) or CHANGES.match(" ".join(texts)):
            self._skip(node)
        else:
            saved = self.variables.copy()
            self._assign(map(self._assigned, command.Assigns), True)
            found = self.program(values)
            self.variables = saved
            fed = [r.Hdoc.text for r in node.Redirs if r.Hdoc]
            whole = " ".join([*(value.text for value in values), *fed])
            if not found and (reason := not_read(whole)):
                self.notes.append(Note(node.line, "unread", reason))
            self._ended |= texts[0] == "exec" and len(words) > 1

    def program(self, values: Sequence[Value]) -> bool:
        """Take `swift`, or what runs it; say whether it is that."""
        inner = unwrapped([value for value in values if not value.vanishes])
        if inner is None:
            return False
        command, variables = inner
        command.lost, command.folder = self.lost is not None, self.folder
        notes = [note for value in values if value.vanishes for note in value.notes]
        for name, variable in ({n: self.get(n) for n in self.variables} | variables).items():
            if variable.value and variable.value.known and variable.exported:
                command.environment[name] = variable.value.text
            elif variable.value and variable.exported is not False:
                command.unknown |= {name}
                notes += variable.value.notes
        command.notes = [replace(n, kind="needed") if n.kind == "unset" else n for n in notes]
        self.commands.append(command)
        return True
