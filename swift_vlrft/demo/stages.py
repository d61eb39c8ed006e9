"""Progress of the demo's stages: bars in a terminal, a line now and then in a log."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINES_PER_STAGE = 10


class Stages:
    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def __enter__(self) -> Stages:
        self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bars.stop()

    def begin(self, name: str, total: int) -> Callable[[int, str], None]:
        """Start a stage of ``total`` steps; what is returned takes the steps done and a note."""
        bar = self.bars.add_task(name, total=total, note="")
        every = max(1, total // LINES_PER_STAGE)
        if not self.console.is_terminal:
            self.console.print(f"{name}: {total} steps", highlight=False)

        def advance(done: int, note: str) -> None:
            self.bars.update(bar, completed=done, note=note)
            if not self.console.is_terminal and (done % every == 0 or done == total):
                self.console.print(f"{name}: {done}/{total} {note}", highlight=False)

        return advance
