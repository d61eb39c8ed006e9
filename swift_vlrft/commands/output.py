"""All commands print tables, errors and JSON by these functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from swift_vlrft.files.records import strict_json
from swift_vlrft.files.text import lines, printable

if TYPE_CHECKING:
    from swift_vlrft.datasets.writer import Written

LEFT_OUT_SHOWN = 10
PANELS = {
    "Start, on a CPU: vlrft try instances_train.json": ("try", "demo", "tiny"),
    "Before a run: vlrft check run.sh": (
        *("data", "check", "plan", "recipe", "agree", "doctor", "plugin"),
    ),
    "After a run: vlrft score output/v0/completions.jsonl": (
        *("score", "eval", "compare", "report", "publish"),
    ),
}
"""The commands in the order in which a user needs them, under headings with an example each."""
OF_PLUGIN = {
    *("accelerate", "modelscope", "peft", "requests", "safetensors", "swift"),
    *("tokenizers", "torch", "torchvision", "transformers", "trl"),
}
"""Modules that the extra ``swift`` brings in."""
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


def dashed(name: str) -> str:
    """Read --max_length as --max-length: ms-swift's users type the first."""
    return name.replace("_", "-")


CONTEXT = {"help_option_names": ["-h", "--help"], "token_normalize_func": dashed}


class Commands(TyperGroup):
    """Turns an error of a command into a line and an exit code, in this one place."""

    def list_commands(self, ctx: Any) -> list[str]:
        known = super().list_commands(ctx)
        return sorted(known, key=lambda name: (*PANEL_OF, name).index(name))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `vlrft data list | head`
            raise
        except ModuleNotFoundError as error:
            if (name := (error.name or "").partition(".")[0]) not in OF_PLUGIN:
                raise
            fail(ValueError(f'{name} is not installed: pip install "swift-vlrft[swift]"'))
        except (OSError, ValueError) as error:
            fail(error)


def fail(error: Exception) -> NoReturn:
    """Print one line on the error stream; exit code 2, or the error's own ``exit_code``."""
    say_marked("error:", error, "red", error=True)
    raise typer.Exit(getattr(error, "exit_code", 2)) from None


def say(*texts: object, error: bool = False) -> None:
    """Print each text on one line, on the error stream if ``error``.

    All that the commands print goes through this file: whatever a model or a file says reaches the
    terminal as text that is shown, and never as markup or control characters.
    """
    for text in texts:
        typer.echo(printable(text), err=error)


def say_marked(mark: str, text: object, colour: str, *, error: bool = False) -> None:
    """Print a line that begins with a word in a colour (a style of rich)."""
    say_styled((mark, colour), " ", text, error=error)


def say_styled(*parts: object, error: bool = False) -> None:
    """Print a line of parts, each a text or (text, style)."""
    drawn = Text()
    for part in parts:
        text, style = part if isinstance(part, tuple) else (part, "")
        drawn.append(lines(text), style)
    Console(emoji=False, stderr=error).print(drawn, soft_wrap=True)


def print_json(data: Any) -> None:
    typer.echo(strict_json(data))


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def plain(text: object) -> str:
    """Return a text for rich in which neither markup nor control characters count."""
    return escape(printable(text))


class TextTable(Table):
    """Holds cells of plain text."""

    def add_row(self, *cells: Any, **more: Any) -> None:
        super().add_row(*map(plain, cells), **more)


def table(*columns: str, title: str | None = None, wraps: tuple[str, ...] = ()) -> Table:
    """Make a table whose cells stay on one line, except in the columns ``wraps``.

    A heading that begins with ">" is aligned to the right. Plain if the output is a file.
    """
    box = SIMPLE_HEAD if sys.stdout.isatty() else None
    drawn = TextTable(title=title and plain(title), title_justify="left", box=box)
    for heading in columns:
        name, right = heading.removeprefix(">"), heading.startswith(">")
        if name in wraps:
            drawn.add_column(name, min_width=24)
        else:
            drawn.add_column(plain(name), justify="right" if right else "left", no_wrap=True)
    return drawn


def show(drawn: Table) -> None:
    """Print a table; it is wider than the terminal rather than breaking a name or a path."""
    console = Console(emoji=False)
    needed = Measurement.get(console, console.options.update(max_width=100_000), drawn)
    widest = needed.maximum if not console.is_terminal else max(console.width, needed.minimum)
    wide = Console(emoji=False, width=widest)
    with wide.capture() as captured:
        wide.print(drawn)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_written(written: Written, as_json: bool) -> None:
    """Print what was written and what was left out."""
    counts = {name: n for name, n in written.counts.items() if n}
    if as_json:
        result = {
            "folder": str(written.folder),
            "rows": written.rows,
            "shards": written.shards,
            "left_out": written.left_out_records(),
            "counts": counts,
            "notes": written.notes,
        }
        return print_json(result)
    shown = [f"note: {note}" for note in written.notes]
    shown += [f"{n} {name}" for name, n in counts.items()]
    shown += [f"left out: {row}" for row in written.left_out[:LEFT_OUT_SHOWN]]
    if written.left_out:
        shown.append(f"{len(written.left_out)} rows left out: {written.folder / 'left_out.jsonl'}")
    say(*shown, f"{written.folder}: {written.rows} rows, {written.shards} shard(s)")
