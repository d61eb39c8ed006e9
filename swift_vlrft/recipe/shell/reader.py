"""What a script is read into, and what the parts of the reader need of the one that reads it.

Words hold commands (``$(...)``) and commands are made of words, so that those who expand words and
those who run commands call each other: both get the ``Reader``, which is shell.py's Shell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from swift_vlrft.recipe.shell.grammar import Node
from swift_vlrft.recipe.shell.state import Assigned, State, Value
from swift_vlrft.recipe.shell.words import Note, Span


@dataclass(slots=True)
class Command:
    """A `swift` command with what it finds in its environment, from `swift` on.

    ``unknown``: variables that may be there with a value that was not read; ``lost``: any other
    may, too. ``folder``: where it runs, None where that is not known. ``whole``: its place with the
    assignments and wrappers in front.
    """

    words: list[Value]
    environment: dict[str, str]
    line: int
    unknown: frozenset[str] = frozenset()
    lost: bool = False
    folder: str | None = None
    assigned: dict[str, Assigned] = field(default_factory=dict)
    span: Span | None = None
    whole: Span | None = None
    launcher: str = ""
    processes: str = ""
    nodes: str = ""
    notes: list[Note] = field(default_factory=list)
    written: dict[str, str | None] = field(default_factory=dict)
    """Files that the script writes before, with their text where that is known."""


class Reader(Protocol):
    """Where a script has got to, and what has been found on the way.

    ``asked``: variables that a condition asks for, so that it is no fault where they are not set;
    ``used``: those whose value was taken. ``inside``: functions that run now; ``depth``: with the
    texts of `eval` and `source`. ``quiet``: the same commands are read once more, without a word.
    """

    state: State
    script: str | None
    substitutions: Mapping[str, Callable[[], str]]
    notes: list[Note]
    commands: list[Command]
    used: set[str]
    asked: set[str]
    written: dict[str, str | None]
    unseen: dict[tuple[str, int], bool]
    blocks: list[tuple[str, int]]
    inside: int
    depth: int
    quiet: int

    def note(self, note: Note) -> None: ...

    def run_alone(self, nodes: Sequence[Node]) -> None: ...

    def run_text(self, text: str, line: int) -> None: ...
