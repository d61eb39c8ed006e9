"""The command `vlrft` in this process: run, or read and not run."""

from typing import Any

from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from swift_vlrft.cli import app


def vlrft(*words: object, **environment: str) -> Result:
    """Exit code and output of ``vlrft WORDS``."""
    return CliRunner().invoke(app, [*map(str, words)], env=environment)


def parsed(words: list[str]) -> Any:
    """The context of the command that the words name, its options read, nothing run."""
    command, context = get_command(app), None
    while True:
        context = command.make_context(words[0], words[1:], parent=context)
        words = [*context._protected_args, *context.args]
        if not hasattr(command, "commands") or not words:
            return context
        command = command.get_command(context, words[0])
