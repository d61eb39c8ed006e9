"""Options that messages name exist, and the command that the message gives with them has them."""

import ast
import re
from pathlib import Path

import pytest
import typer

import swift_vlrft
from swift_vlrft.cli import app
from swift_vlrft.recipe.facts import facts

OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9_-]+)")
COMMAND = re.compile(r"vlrft ((?:data |recipe )?[a-z]+)([^`\n;]*)")
OTHERS = {
    *("help", "format", "query-gpu", "norc", "noprofile", "to-json", "export", "module"),
    *("hf-overrides", "shm-size", "repo-type", "local-dir", "no-build-isolation"),
    *("nproc-per-node", "master-addr", "master-port"),
}
"""Of bash, Docker, git, nvidia-smi, hf, pip, torchrun and vLLM."""


def options_by_command(group, name=""):
    """The options of a command and of those below it, with dashes, by the words that call it."""
    words = [o for p in group.params for o in (*p.opts, *p.secondary_opts)]
    found = {name: {word.lstrip("-").replace("_", "-") for word in words} | {"help"}}
    for key, command in getattr(group, "commands", {}).items():
        found |= options_by_command(command, f"{name} {key}".strip())
    return found


def messages():
    """Every text in the package's code but docstrings, with an X for what an f-string puts in."""
    for file in Path(swift_vlrft.__file__).parent.rglob("*.py"):
        nodes = [*ast.walk(ast.parse(file.read_text()))]
        left = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        left |= {id(part) for n in nodes if isinstance(n, ast.JoinedStr) for part in n.values}
        for node in (node for node in nodes if id(node) not in left):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            values = [part.value if isinstance(part, ast.Constant) else "X" for part in parts]
            if isinstance(node, ast.JoinedStr | ast.Constant) and isinstance(values[0], str):
                yield f"{file.name}:{node.lineno}", "".join(values)


def named(text):
    return [name.replace("_", "-") for name in OPTION.findall(text)]


@pytest.mark.slow
def test_an_option_in_a_message_is_one_of_the_command_that_the_message_names():
    of_commands = options_by_command(typer.main.get_command(app))
    flags = {name.replace("_", "-") for name in facts().commands}
    known = set().union(*of_commands.values()) | flags | OTHERS
    wrong = []
    for place, text in messages():
        wrong += [(place, name) for name in named(text) if name not in known]
        for command, behind in COMMAND.findall(text):
            here = of_commands.get(command, known)
            # Behind a recipe stand flags of ms-swift.
            taken = here | flags if command in ("plan", "recipe new") else here
            wrong += [(place, command, name) for name in named(behind) if name not in taken]
    assert wrong == []
