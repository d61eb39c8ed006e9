"""Before a script is read, list what it sets: how often, whether a branch decides it, and what it
may export.

scan_assignments(statements)      for `A=1; if x; then A=2; fi; export B=3`
    times {"A": 2, "B": 1}    conditional {"A": note on line 1}    exports {"B"}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swift_vlrft.recipe.tree import Node, Note
from swift_vlrft.recipe.words import BY_RUN, CHANGES

BRANCHES = {
    **{"IfClause": "`if`", "CaseClause": "`case`", "ForClause": "`for`"},
    **{"WhileClause": "loop", "FuncDecl": "function"},
}
SETS = ("read", "getopts", "mapfile", "readarray", "unset", "wait", "printf")
"""Builtins that set variables that are among their arguments."""


class Assignments(NamedTuple):
    """The assignments of a script."""

    times: Counter[str]
    """How often each variable is set."""
    conditional: dict[str, Note]
    """A note on each variable that a branch, a loop, a function or a single command sets."""
    exports: set[str]
    """Variables that may be exported."""


def scan_assignments(statements: Sequence[Node]) -> Assignments:
    """List the variables that statements set, before they are read."""
    nodes = [node for statement in statements for node in statement.walk()]
    functions = {node.Name.Value for node in nodes if node.Type == "FuncDecl" and node.Name}
    times = Counter(name for node in nodes for name in set_by(node, functions))
    conditional = [row for node in statements for row in _set_conditionally(node, functions)]
    for node in nodes:
        if first_word(node) in functions:
            conditional += [(a.Name.Value, "command", node.line) for a in node.Assigns]
    notes = dict[str, Note]()
    for name, what, line in conditional:
        why = f"${name} is not read: it is set in the {what} of line {line}; {BY_RUN}"
        notes.setdefault(name, Note(line, "unread", why, name))
    exporting = [n for n in nodes if n.Type == "DeclClause" or (n.Args and n.Assigns)]
    exports = {name for node in exporting for name in set_by(node, functions)}
    if any(first_word(node) == "set" and "a" in node.text[3:] for node in nodes):
        exports |= set(times)
    return Assignments(times, notes, exports)


def first_word(node: Node) -> str:
    """Return the first word of a command, as written."""
    return node.Args[0].text if node.Type == "CallExpr" and node.Args else ""


def set_by(node: Node, functions: set[str]) -> Iterator[str]:
    """Yield the names of the variables that a node itself sets, without the nodes below it."""
    first = first_word(node)
    if node.Type == "DeclClause":
        yield from (word.Name.Value for word in node.Args if word.Name)
    elif node.Type == "CallExpr" and (not node.Args or first in functions):
        yield from (assigned.Name.Value for assigned in node.Assigns)
    elif first in SETS:
        words = [word.text.strip("'\"") for word in node.Args[1:]]
        names = (
            words[1:2] if first in ("printf", "wait") and words[:1] in (["-v"], ["-p"]) else words
        )
        yield from names if first not in ("printf", "wait") or names is not words else ()
    elif node.Type == "WordIter":
        yield node.Name.Value
    elif node.Type in ("ArithmCmd", "ArithmExp", "LetClause", "CStyleLoop"):
        yield from (match[1] or match[2] for match in CHANGES.finditer(node.text))
    elif node.Type == "ParamExp" and node.Exp and node.Exp.Op in ("=", ":="):
        yield node.Param.Value


def _set_conditionally(
    node: Node, functions: set[str], what: str = "", line: int = 0
) -> Iterator[tuple[str, str, int]]:
    """The variables that are set in a branch, a loop or a function, with what and where it is."""
    if node.Type in BRANCHES and not what:
        what, line = BRANCHES[node.Type], node.line
    if what:
        yield from ((name, what, line) for name in set_by(node, functions))
    chained = node.Type == "BinaryCmd" and node.Op in ("&&", "||") and not what
    for child in node.children():
        if chained and child is node.Y:
            yield from _set_conditionally(child, functions, f"`{node.Op}`", node.line)
        else:
            yield from _set_conditionally(child, functions, what, line)
